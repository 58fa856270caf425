-- Specifications: the types of a `.x` file, its programs, and the fields of a Wireshark protocol for them.

local Specification = {}
Specification.__index = Specification

-- Creates a specification whose fields begin with `protocol`. If it is `flat`, a field whose name no other type has is
-- named without its type.
function R.specification(protocol, title, is_flat)
  local created, proto = pcall(Proto.new, protocol, title)
  if not created then
    local text = "Wireshark rejects the protocol `%s`; choose another name with `xdrgen wireshark --protocol`: %s"
    error(string.format(text, protocol, tostring(proto)), 0)
  end
  return setmetatable({
    protocol = protocol,
    proto = proto,
    types = {},
    order = {},
    programs = {},
    is_flat = is_flat,
    has_eligible = false,
    abbreviations = {},
    fields = {},
    -- Fields to show in hexadecimal, and the names of values that are constants in the specification.
    hexadecimal = {},
    names = {},
  }, Specification)
end

function Specification:declare(name, kind)
  kind.name = name
  self.types[name] = kind
  table.insert(self.order, kind)
end

function Specification:enum(name, values)
  self:declare(name, { kind = "enum", values = values })
end

function Specification:struct(name, fields)
  self:declare(name, { kind = "struct", fields = fields })
end

function Specification:union(name, discriminant, union)
  union.kind = "union"
  union.discriminant = discriminant
  union.by_value = {}
  for _, arm in ipairs(union.arms) do
    for _, value in ipairs(arm.cases) do
      union.by_value[value] = arm
    end
  end
  self:declare(name, union)
end

function Specification:typedef(field)
  self:declare(field[1], { kind = "typedef", field = field })
end

-- Declares a type of which only the name is known.
function Specification:unknown(name)
  self:declare(name, { kind = "unknown" })
end

function Specification:program(name, number, versions)
  table.insert(self.programs, { name = name, number = number, versions = versions })
end

-- Returns the kind of the values that a field shows, after typedefs: a basic type, an enumeration, or a container.
function Specification:leaf(field)
  local base = field[2]
  for _ = 1, 1000 do
    local item = self.types[base]
    if item == nil then
      return base
    elseif item.kind ~= "typedef" then
      return item.kind, item
    end
    base = item.field[2]
  end
  return "unknown"
end

local BASIC = {
  ["int"] = { "int32", base.DEC },
  ["unsigned int"] = { "uint32", base.DEC },
  ["C char"] = { "int32", base.DEC },
  ["C short"] = { "int32", base.DEC },
  ["C unsigned char"] = { "uint32", base.DEC },
  ["C unsigned short"] = { "uint32", base.DEC },
  ["hyper"] = { "int64", base.DEC },
  ["unsigned hyper"] = { "uint64", base.DEC },
}
local PLAIN = {
  bool = "bool",
  float = "float",
  double = "double",
  quadruple = "bytes",
  opaque = "bytes",
  string = "string",
}

-- Creates the Wireshark field of a field of the specification.
function Specification:create(field, owner)
  local name = field[1]
  local qualified = (owner .. "." .. name):gsub("[^%w_.]", "_")
  local abbreviation = self.protocol .. "." .. qualified
  if self.is_flat and self.uses[name] == 1 then
    abbreviation = self.protocol .. "." .. name
  end
  local leaf, item = self:leaf(field)
  -- Versions of a program may have procedures with the same name, and a procedure may have the name of a type.
  local before = self.abbreviations[abbreviation]
  while before and not (before.leaf == leaf and before.item == item) do
    abbreviation = abbreviation .. "_"
    before = self.abbreviations[abbreviation]
  end
  field.key = owner .. "." .. name
  self.has_eligible = self.has_eligible or field.eligible == true
  if before then
    field.shown = before.created
    return
  end
  local created
  if leaf == "enum" then
    created = ProtoField.int32(abbreviation, name, base.DEC, item.values)
  elseif BASIC[leaf] then
    local kind, shown = BASIC[leaf][1], BASIC[leaf][2]
    if self.hexadecimal[name] then
      shown = base.HEX
    end
    created = ProtoField[kind](abbreviation, name, shown, self.names[name])
  elseif PLAIN[leaf] then
    created = ProtoField[PLAIN[leaf]](abbreviation, name)
  else
    created = ProtoField.none(abbreviation, name)
  end
  field.shown = created
  self.abbreviations[abbreviation] = { created = created, leaf = leaf, item = item }
  table.insert(self.fields, created)
end

-- Returns the fields of an item that can be shown. A typedef is shown by itself only in headers; elsewhere, the fields
-- of its type have its values.
function Specification:fields_of(item)
  if item.kind == "struct" then
    return item.fields
  elseif item.kind == "typedef" then
    return self.is_flat and { item.field } or {}
  elseif item.kind == "union" then
    local found = { item.discriminant }
    for _, arm in ipairs(item.arms) do
      table.insert(found, arm.field)
    end
    table.insert(found, type(item.default) == "table" and item.default or nil)
    return found
  end
  return {}
end

function Specification:extra(name, field)
  self[name] = field
  table.insert(self.fields, field)
end

-- Gives all fields to Wireshark, and the programs to the dissector.
function Specification:register()
  self.uses = {}
  for _, item in ipairs(self.order) do
    for _, field in ipairs(self:fields_of(item)) do
      self.uses[field[1]] = (self.uses[field[1]] or 0) + 1
    end
  end
  for _, item in ipairs(self.order) do
    for _, field in ipairs(self:fields_of(item)) do
      self:create(field, item.name)
    end
  end
  local programs = {}
  for _, program in ipairs(self.programs) do
    programs[program.number] = program.name
    for _, version in ipairs(program.versions) do
      for _, procedure in ipairs(version.procedures) do
        for _, field in ipairs(procedure.args) do
          self:create(field, procedure.name)
        end
        if procedure.result then
          self:create(procedure.result, procedure.name)
        end
        R.procedures[string.format("%d.%d.%d", program.number, version.number, procedure.number)] =
          { specification = self, program = program, version = version, procedure = procedure }
      end
    end
    R.programs[program.number] = self
  end
  local prefix = self.protocol .. "."
  self:extra("field_reduced", ProtoField.uint32(prefix .. "reduced", "Bytes in a chunk", base.DEC))
  if #self.programs > 0 then
    self:extra("field_xid", ProtoField.uint32(prefix .. "xid", "XID", base.HEX))
    self:extra("field_type", ProtoField.uint32(prefix .. "type", "Type", base.DEC, { [0] = "call", [1] = "reply" }))
    self:extra("field_program", ProtoField.uint32(prefix .. "program", "Program", base.HEX, programs))
    self:extra("field_version", ProtoField.uint32(prefix .. "version", "Version", base.DEC))
    self:extra("field_procedure", ProtoField.uint32(prefix .. "procedure", "Procedure", base.DEC))
    self:extra("field_name", ProtoField.string(prefix .. "procedure_name", "Procedure name"))
    self:extra("field_call_in", ProtoField.framenum(prefix .. "call_in", "Call in", base.NONE, frametype.REQUEST))
    self:extra("field_reply_in", ProtoField.framenum(prefix .. "reply_in", "Reply in", base.NONE, frametype.RESPONSE))
  end
  self.proto.fields = self.fields
  local groups, severities = expert.group, expert.severity
  self.malformed = ProtoExpert.new(prefix .. "malformed", "Malformed message", groups.MALFORMED, severities.ERROR)
  self.note = ProtoExpert.new(prefix .. "note", "Incomplete message", groups.UNDECODED, severities.NOTE)
  self.proto.experts = { self.malformed, self.note }
end
