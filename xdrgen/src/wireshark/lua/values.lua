-- Display of values by their types (RFC 4506).

-- The maximum nesting of types. Wireshark itself limits the depth of its tree.
local MAX_DEPTH = 100
-- The maximum number of tree items per packet. Wireshark refuses to show more than a million.
local MAX_ITEMS = 100000

local Dissection = {}
Dissection.__index = Dissection

-- Starts to show values of `specification` from `reader`. `packet` counts the items of all messages in a packet.
function Dissection.new(specification, reader, packet)
  local new = { specification = specification, reader = reader, packet = packet, depth = 0, values = {} }
  return setmetatable(new, Dissection)
end

function Dissection:count()
  self.packet.items = self.packet.items + 1
  if self.packet.items > MAX_ITEMS then
    fail("the packet has too many items to show")
  end
end

-- Calls `show` one level deeper.
function Dissection:nested(show, ...)
  if self.depth >= MAX_DEPTH then
    fail("nested more than " .. MAX_DEPTH .. " levels deep")
  end
  self.depth = self.depth + 1
  show(self, ...)
  self.depth = self.depth - 1
end

-- Keeps the first value of a field of the headers.
function Dissection:keep(field, value)
  if self.values[field.key] == nil then
    self.values[field.key] = value
  end
end

-- Adds an item whose length is not known yet.
function Dissection:open(tree, shown, text)
  self:count()
  local item = tree:add(shown, self.reader:rest())
  item:set_text(text)
  return item, self.reader.at
end

function Dissection:close(item, from)
  item:set_len(math.max(self.reader.at - from, 0))
end

-- Adds an item that was moved to a chunk.
function Dissection:reduced(tree, label, chunk)
  self:count()
  local text = string.format("%s: reduced, %.0f bytes in %s chunk %d", label, chunk.length, chunk.list, chunk.number)
  local here = self.reader:since(self.reader.at)
  local item = tree:add(here, text)
  item:add(self.specification.field_reduced, here, chunk.length):set_generated()
end

local RANGES = {
  ["C char"] = { -128, 127 },
  ["C short"] = { -32768, 32767 },
  ["C unsigned char"] = { 0, 255 },
  ["C unsigned short"] = { 0, 65535 },
}

-- Shows a value of a basic type. Returns it, if it can select the arm of a union: as a number, or in decimal if it has
-- 64 bits.
function Dissection:basic(tree, kind, shown)
  local reader = self.reader
  self:count()
  if kind == "bool" then
    local from = reader.at
    local value = reader:flag()
    tree:add(shown, reader:since(from))
    return value and 1 or 0
  elseif kind == "hyper" or kind == "unsigned hyper" then
    local range = reader:take(8)
    tree:add(shown, range)
    return tostring(kind == "hyper" and range:int64() or range:uint64())
  elseif kind == "double" then
    tree:add(shown, reader:take(8))
  elseif kind == "quadruple" then
    tree:add(shown, reader:take(16))
  elseif kind == "float" then
    tree:add(shown, reader:take(4))
  else
    local range = reader:take(4)
    local value = (kind == "unsigned int" or kind:find("unsigned")) and range:uint() or range:int()
    tree:add(shown, range)
    local limits = RANGES[kind]
    if limits and (value < limits[1] or value > limits[2]) then
      fail(value .. " is not a value of `" .. kind:sub(3) .. "`")
    end
    return value
  end
end

-- Shows a value of a declared or basic type. `field` names it.
function Dissection:base(tree, name, field, shown, label, is_eligible)
  local item = self.specification.types[name]
  if item and item.kind == "typedef" then
    return self:nested(self.field, tree, item.field, field, shown, label, is_eligible)
  end
  if is_eligible then
    -- All of an eligible item of fixed size moves to the chunk.
    local chunk = self.reader:take_chunk(true)
    if chunk then
      return self:reduced(tree, label, chunk)
    end
  end
  if item == nil then
    self:keep(field, self:basic(tree, name, shown))
  elseif item.kind == "enum" then
    self:keep(field, self:basic(tree, "int", shown))
  elseif item.kind == "unknown" then
    fail("the encoding of `" .. name .. "` is unknown")
  else
    local container, from = self:open(tree, shown, label)
    self:nested(item.kind == "struct" and self.struct or self.union, container, item)
    self:close(container, from)
  end
end

function Dissection:struct(tree, item)
  for _, field in ipairs(item.fields) do
    self:field(tree, field, field, field.shown, field[1], false)
  end
end

function Dissection:union(tree, item)
  local discriminant = item.discriminant
  local before = self.values[discriminant.key]
  self.values[discriminant.key] = nil
  self:field(tree, discriminant, discriminant, discriminant.shown, discriminant[1], false)
  local value = self.values[discriminant.key]
  self.values[discriminant.key] = before or value
  local arm = item.by_value[value]
  if arm == nil and item.default == nil then
    fail(string.format("union `%s` has no arm for %s", item.name, tostring(value)))
  end
  local field
  if arm then
    field = arm.field
  elseif item.default ~= true then
    field = item.default
  end
  if item.opaque and not (field and field.own_length) then
    -- The length of the arm precedes it.
    local len = self.reader:word()
    self.reader:need(len)
    local stop = self.reader.stop
    self.reader.stop = self.reader.at + len
    if field then
      self:field(tree, field, field, field.shown, field[1], false)
    end
    if self.reader:left() > 0 then
      fail(string.format("%d bytes follow the arm of `%s`", self.reader:left(), item.name))
    end
    self.reader.stop = stop
    return
  end
  if field then
    self:field(tree, field, field, field.shown, field[1], false)
  end
end

-- Shows the contents of an opaque item or a string of known length.
function Dissection:opaque(tree, len, field, shown, label, is_eligible, is_fixed)
  local reader = self.reader
  if not is_eligible and not self.specification.has_eligible and not is_fixed and len > 0 then
    -- Plain XDR does not mark eligible items. The length of the chunk, and a message too short for the item, tell.
    local write = reader:next_write()
    is_eligible = write ~= nil and (write.length == len or write.length == padded(len)) and reader:left() < padded(len)
  end
  local chunk = reader:take_chunk(is_eligible, len)
  if chunk then
    if chunk.length ~= len and chunk.length ~= padded(len) then
      fail(string.format("the item has %.0f bytes, but its chunk has %.0f", len, chunk.length))
    end
    -- A chunk may contain the padding.
    return self:reduced(tree, label, { length = len, list = chunk.list, number = chunk.number })
  end
  self:count()
  reader:need(len)
  if len == 0 then
    tree:add(shown, reader:since(reader.at)):set_text(label .. ": empty")
    return
  end
  local range = reader:take(len)
  tree:add(shown, range)
  self:keep(field, range)
  reader:take(padded(len) - len)
end

local function elements(len)
  return len == 1 and "1 element" or string.format("%.0f elements", len)
end

-- Shows `len` elements. A hostile length costs nothing, because each element takes bytes of the message.
function Dissection:array(tree, len, declared, field, shown, label, is_eligible)
  local reader = self.reader
  local chunk = (len > 0 or is_eligible) and reader:take_chunk(is_eligible) or nil
  if chunk then
    return self:reduced(tree, label, chunk)
  end
  self:count()
  local from = reader.at
  local container = tree:add(reader:rest(), label .. ": " .. elements(len))
  for index = 0, len - 1 do
    local before = reader.at
    self:nested(self.base, container, declared[2], field, shown, string.format("%s[%d]", label, index), false)
    if reader.at == before then
      break
    end
  end
  self:close(container, from)
end

-- Shows a list whose nodes are linked by optional pointers (RFC 4506 section 4.19).
function Dissection:list(tree, declared, field, shown, label)
  local reader = self.reader
  self:count()
  local container, from, len = tree:add(reader:rest(), label), reader.at, 0
  local more = declared.list == "nonempty" or reader:flag()
  while more do
    self:nested(self.base, container, declared[2], field, shown, string.format("%s[%d]", label, len), false)
    len = len + 1
    more = reader:flag()
  end
  container:append_text(": " .. elements(len))
  self:close(container, from)
end

local function checked(len, max)
  if max and len > max then
    fail(string.format("length %.0f exceeds the maximum of %.0f", len, max))
  end
  return len
end

-- Shows a field. `declared` has the type: that of the field, or that of a typedef which the field uses.
function Dissection:field(tree, declared, field, shown, label, is_eligible)
  is_eligible = is_eligible or declared.eligible == true
  local reader, name = self.reader, declared[2]
  if name == "opaque" or name == "string" then
    if declared.length then
      self:opaque(tree, declared.length, field, shown, label, is_eligible, true)
    else
      self:opaque(tree, checked(reader:word(), declared.max), field, shown, label, is_eligible, false)
    end
  elseif declared.list then
    self:list(tree, declared, field, shown, label)
  elseif declared.optional then
    local from = reader.at
    if reader:flag() then
      self:nested(self.base, tree, name, field, shown, label, false)
    else
      self:count()
      tree:add(reader:since(from), label .. ": none")
    end
  elseif declared.count then
    self:array(tree, declared.count, declared, field, shown, label, is_eligible)
  elseif declared.elements then
    self:array(tree, checked(reader:word(), declared.max), declared, field, shown, label, is_eligible)
  else
    self:base(tree, name, field, shown, label, is_eligible)
  end
end

-- Shows an item of the specification without a container: the fields of a struct, or the value of a typedef.
function Dissection:named(tree, name)
  local item = self.specification.types[name]
  if item.kind == "typedef" then
    self:field(tree, item.field, item.field, item.field.shown, item.name, false)
  else
    self:nested(item.kind == "struct" and self.struct or self.union, tree, item)
  end
end

-- Runs `show`, and adds an expert information to `tree` if the message is malformed or cut. Returns `true` if it is
-- not.
local function guarded(specification, tree, show)
  local done, problem = pcall(show)
  if done then
    return true
  end
  local is_malformed = type(problem) == "table" and problem.why
  local text = is_malformed and problem.why or "the dissector failed: " .. tostring(problem)
  tree:add_proto_expert_info(is_malformed and problem.is_cut and specification.note or specification.malformed, text)
  return false
end
