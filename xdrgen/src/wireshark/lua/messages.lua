-- RPC messages (RFC 5531) and RPC-over-RDMA messages of versions 1 (RFC 8166) and 2
-- (draft-ietf-nfsv4-rpcrdma-version-two-01).

local CALL, SUCCESS = 0, 0
local AUTH_SYS, RPCSEC_GSS = 1, 6
local MSG, NOMSG, ERROR, PROPERTIES = 0, 1, 4, 5
local MORE = 2

-- Returns `true` if a credential of RPCSEC_GSS leaves the arguments as they are: data exchange without protection (RFC
-- 2203 section 5).
local function is_plain_gss(body)
  if body == nil or body:len() < 16 then
    return false
  end
  return body(0, 4):uint() == 1 and body(4, 4):uint() == 0 and body(12, 4):uint() == 1
end

local function name_of(called)
  local found = R.procedures[string.format("%d.%d.%d", called.program, called.version, called.procedure)]
  if found then
    return found, string.format("%s %s", found.version.name, found.procedure.name)
  end
end

-- Puts the description of a message into the columns. A packet may have several messages, and other dissectors may keep
-- theirs.
local function describe(packet, protocol, text)
  local columns = packet.pinfo.cols
  packet.header = nil
  if text == packet.description then
    return
  end
  columns.protocol:set(protocol)
  if packet.description == nil then
    columns.info:set("")
  end
  local before = tostring(columns.info)
  columns.info:append((before ~= "" and before ~= "(info)" and "; " or "") .. text)
  packet.description = text
end

-- Shows the identity of a call or reply in the tree of its program.
local function show_identity(tree, specification, called, is_call, xid, here)
  local function generated(field, value)
    tree:add(field, here, value):set_generated()
  end
  local found = name_of(called)
  generated(specification.field_xid, xid)
  generated(specification.field_type, is_call and 0 or 1)
  generated(specification.field_program, called.program)
  generated(specification.field_version, called.version)
  generated(specification.field_procedure, called.procedure)
  if found then
    generated(specification.field_name, found.procedure.name)
  end
  if is_call and called.reply_frame then
    generated(specification.field_reply_in, called.reply_frame)
  elseif not is_call then
    generated(specification.field_call_in, called.frame)
  end
end

-- Shows the arguments of a call or the result of a reply.
local function show_body(packet, tree, called, is_call, xid, reader, chunks)
  local specification = R.programs[called.program]
  local found, name = name_of(called)
  name = name or string.format("version %d procedure %d", called.version, called.procedure)
  local kind = is_call and "call" or "reply"
  local title = specification.proto.description
  local root = tree:add(specification.proto, reader:rest(), string.format("%s, %s %s", title, name, kind))
  describe(packet, specification.protocol:upper(), string.format("%s %s 0x%08x", name, kind, xid))
  show_identity(root, specification, called, is_call, xid, reader:since(reader.at))
  if called.is_protected then
    root:add_proto_expert_info(specification.note, "RPCSEC_GSS protects the data, which is therefore not decoded")
    return
  elseif not found then
    root:add_proto_expert_info(specification.note, "the specification does not declare this procedure")
    return
  end
  reader.reads = is_call and chunks.reads or {}
  reader.writes = is_call and {} or chunks.writes
  local dissection = Dissection.new(specification, reader, packet)
  local is_whole = guarded(specification, root, function()
    if is_call then
      for _, field in ipairs(found.procedure.args) do
        dissection:field(root, field, field, field.shown, field[1], false)
      end
    elseif found.procedure.result then
      local field = found.procedure.result
      dissection:field(root, field, field, field.shown, field[1], false)
    end
  end)
  for _, chunk in ipairs(reader:unused_chunks()) do
    root:add_proto_expert_info(specification.note,
      string.format("%s chunk %d of %.0f bytes belongs to no item", chunk.list, chunk.number, chunk.length))
  end
  if is_whole and reader:left() > 0 then
    local what = is_call and "arguments" or "result"
    root:add_proto_expert_info(specification.note, string.format("%d bytes follow the %s", reader:left(), what))
  end
end

-- Remembers a call, or finds the call of a reply. Later passes over the capture get what the first one found.
local function identify(packet, is_call, xid, called)
  local key = string.format("%d|%s|%s|%.0f", packet.number, tostring(is_call), packet.from, xid)
  if R.state.identities[key] ~= nil then
    return R.state.identities[key] or nil
  end
  if is_call then
    called.frame = packet.number
    R.state.calls[packet.from .. "|" .. packet.to .. "|" .. xid] = called
  else
    called = R.state.calls[packet.to .. "|" .. packet.from .. "|" .. xid]
    if called then
      called.reply_frame = packet.number
    end
  end
  R.state.identities[key] = called or false
  return called
end

-- Returns `true` if another packet has this call, or this reply to it.
local function is_known(packet, is_call, xid)
  local called
  if is_call then
    called = R.state.calls[packet.from .. "|" .. packet.to .. "|" .. xid]
  else
    called = R.state.calls[packet.to .. "|" .. packet.from .. "|" .. xid]
  end
  local frame = called and (is_call and called.frame or not is_call and called.reply_frame)
  return frame ~= nil and frame ~= packet.number
end

-- Returns `true` if an RPC message begins at the reader.
local function is_rpc(reader)
  return reader:left() >= 12 and reader.tvb(reader.at + 4, 4):uint() <= 1
end

-- Shows an RPC message. `chunks` has the chunk lists of its transport header.
local function show_rpc(packet, tree, reader, chunks)
  if not is_rpc(reader) then
    return false
  end
  local header = reader:copy()
  header.reads, header.writes = {}, {}
  local xid = reader.tvb(reader.at, 4):uint()
  local is_call = reader.tvb(reader.at + 4, 4):uint() == CALL
  local called
  if is_call then
    if reader:left() < 24 then
      return false
    end
    local function word(index)
      return reader.tvb(reader.at + 4 * index, 4):uint()
    end
    called = { program = word(3), version = word(4), procedure = word(5) }
    if word(2) ~= 2 then
      return false
    end
  end
  called = identify(packet, is_call, xid, called)
  if called == nil or R.programs[called.program] == nil then
    return false
  end
  packet.shown_rpc[xid .. tostring(is_call)] = true
  local description = string.format("%s 0x%08x", is_call and "call" or "reply", xid)
  local root = tree:add(R.rpc.proto, reader:rest(), "ONC RPC, " .. description)
  local dissection = Dissection.new(R.rpc, header, packet)
  if not guarded(R.rpc, root, function() dissection:named(root, "rpc_msg") end) then
    describe(packet, R.rpc.protocol:upper(), description .. ", incomplete")
    return true
  end
  root:set_len(header.at - reader.at)
  local values = dissection.values
  if is_call then
    local flavor, body = values["opaque_auth.flavor"], values["opaque_auth.body"]
    called.is_protected = flavor == RPCSEC_GSS and not is_plain_gss(body)
    if flavor == AUTH_SYS and body then
      local within = root:add(body, "authsys_parms")
      local credential = Dissection.new(R.rpc, header:within(body), packet)
      guarded(R.rpc, within, function() credential:named(within, "authsys_parms") end)
    end
  elseif values["accepted_reply_data.stat"] ~= SUCCESS then
    local specification = R.programs[called.program]
    local _, name = name_of(called)
    local text = string.format("%s error reply 0x%08x", name or "unknown procedure", xid)
    describe(packet, specification.protocol:upper(), text)
    local here = header:since(header.at)
    local body = tree:add(specification.proto, here, specification.proto.description .. ", error reply")
    show_identity(body, specification, called, is_call, xid, here)
    return true
  end
  local body = Reader.new(header.tvb, header.at, header.stop, header.is_cut)
  body.position = header.position
  show_body(packet, tree, called, is_call, xid, body, chunks)
  return true
end

-- Reads the chunk lists, whose encoding is the same in both versions. Segments with the same position form a Read chunk
-- (RFC 8166 section 3.4.5).
local function chunk_lists(reader)
  local lists = { reads = {}, writes = {} }
  local function segment()
    reader:take(4)
    local length = reader:word()
    reader:take(8)
    return length
  end
  local function segments()
    local length = 0
    for _ = 1, reader:word() do
      length = length + segment()
    end
    return length
  end
  while reader:flag() do
    local position = reader:word()
    local length = segment()
    local last = lists.reads[#lists.reads]
    if last and last.position == position then
      last.length = last.length + length
    else
      table.insert(lists.reads, { list = "Read", number = #lists.reads + 1, position = position, length = length })
    end
  end
  while reader:flag() do
    table.insert(lists.writes, { list = "Write", number = #lists.writes + 1, length = segments() })
  end
  if reader:flag() then
    lists.reply = { list = "Reply", number = 1, length = segments() }
  end
  for index = #lists.reads, 1, -1 do
    if lists.reads[index].position == 0 then
      lists.long_call = table.remove(lists.reads, index)
    end
  end
  table.sort(lists.reads, function(one, other) return one.position < other.position end)
  return lists
end

-- Shows the payload stream of an RPC-over-RDMA message.
local function show_payload(packet, tree, reader, chunks)
  if show_rpc(packet, tree, reader, chunks) then
    return
  end
  -- Wireshark itself dissects programs that no specification declares, if nothing was moved out of the message.
  if packet.version == 2 and #chunks.reads == 0 and #chunks.writes == 0 and is_rpc(reader) then
    local rpc = Dissector.get("rpc")
    if rpc then
      rpc:call(reader:rest():tvb(), packet.pinfo, tree)
    end
  end
end

-- Version 1. Wireshark itself shows the header.
local function show_version_1(packet, tree, reader)
  reader:take(12)
  local kind = reader:word()
  if kind ~= MSG then
    return
  end
  local read, lists = pcall(chunk_lists, reader)
  if read then
    reader.position = 0
    show_payload(packet, tree, Reader.new(reader.tvb, reader.at, reader.stop, reader.is_cut), lists)
  end
end

-- Shows the transport properties of an RDMA2_CONNPROP message, and the values of those that the specification declares.
local function show_properties(packet, tree, reader)
  local dissection = Dissection.new(R.transport, reader, packet)
  guarded(R.transport, tree, function()
    for index = 1, reader:word() do
      local container, from = tree:add(reader:rest(), string.format("property %d", index)), reader.at
      dissection.values = {}
      dissection:named(container, "rpcrdma2_propval")
      dissection:close(container, from)
      local data = dissection.values["rpcrdma2_propval.rdma_data"]
      local property = R.transport.properties[dissection.values["rpcrdma2_propval.rdma_which"]]
      if property and data then
        local value = Dissection.new(R.transport, reader:within(data), packet)
        container:set_text(property)
        guarded(R.transport, container, function() value:named(container, property) end)
      end
    end
  end)
end

-- Joins the payload of a message with those of the messages that it continues. Returns `nil` if another message
-- continues it.
local function joined(packet, kind, xid, reader, is_continued)
  local key = string.format("%s|%s|%.0f|%s", packet.from, packet.to, xid, tostring(kind == PROPERTIES))
  local cached = R.state.joined[packet.part]
  if cached == nil then
    local before = R.state.open[key]
    if before and before.last == packet.sequence then
      -- The same message was sent again.
      cached = "continued"
    elseif is_continued then
      before = before or { bytes = {}, messages = 0 }
      before.last = packet.sequence
      table.insert(before.bytes, reader:rest():raw())
      before.messages = before.messages + 1
      before.is_cut = before.is_cut or reader.is_cut
      R.state.open[key] = before
      cached = "continued"
    elseif before then
      table.insert(before.bytes, reader:rest():raw())
      cached = { bytes = table.concat(before.bytes), messages = before.messages + 1 }
      cached.is_cut = before.is_cut or reader.is_cut
      R.state.open[key] = nil
    else
      cached = "single"
    end
    R.state.joined[packet.part] = cached
  end
  if cached == "continued" then
    return nil
  elseif cached == "single" then
    return Reader.new(reader.tvb, reader.at, reader.stop, reader.is_cut)
  end
  local name = string.format("Joined from %d messages", cached.messages)
  return R.reader_of(cached.bytes, name, cached.is_cut), cached.messages
end

-- Version 2.
local function show_version_2(packet, tree, reader)
  local transport = R.transport
  local xid, kind = reader.tvb(reader.at, 4):uint(), reader.tvb(reader.at + 12, 4):uint()
  local kind_name = transport.names.rdma_htype[kind] or ("header type " .. kind)
  local root, from = tree:add(transport.proto, reader:rest(), "RPC-over-RDMA version 2, " .. kind_name), reader.at
  -- The columns describe the RPC message instead, if there is one.
  packet.header = string.format("%s 0x%08x", kind_name, xid)
  local header, chunks, flags = Dissection.new(transport, reader, packet), { reads = {}, writes = {} }, 0
  local is_whole = guarded(transport, root, function()
    header:named(root, "rpcrdma_common")
    local place, field = reader.at, transport.types.rpcrdma2_hdr_prefix.fields[2]
    header:field(root, field, field, field.shown, field[1], false)
    flags = header.values[field.key]
    for _, flag in ipairs(transport.flags) do
      if has_bit(flags, flag[1]) then
        root:add(reader.tvb(place, 4), flag[2]):set_generated()
      end
    end
    if kind == MSG or kind == NOMSG then
      local lists = reader:copy()
      lists:take(4)
      header:named(root, "rpcrdma2_chunk_lists")
      chunks = chunk_lists(lists)
    elseif kind == ERROR then
      header:named(root, "rpcrdma2_error")
    end
  end)
  root:set_len(reader.at - from)
  if not is_whole or (kind ~= MSG and kind ~= PROPERTIES) then
    if kind == NOMSG and is_whole then
      local chunk = chunks.long_call or chunks.reply
      if chunk then
        root:append_text(string.format(", the RPC message of %.0f bytes is in a %s chunk", chunk.length, chunk.list))
      end
    end
    return
  end
  local payload, messages = joined(packet, kind, xid, reader, has_bit(flags, MORE))
  if payload == nil then
    root:append_text(string.format(", continued after %d bytes of payload", reader:left()))
    return
  elseif messages then
    root:append_text(string.format(", the last of %d messages", messages))
  end
  if kind == PROPERTIES then
    show_properties(packet, root, payload)
    root:set_len(reader.stop - from)
  else
    show_payload(packet, tree, payload, chunks)
  end
end

-- Shows the contents of a Send, if they are an RPC-over-RDMA message.
local function show_send(packet, tree, reader)
  if reader:left() < 16 then
    return
  end
  local version, kind = reader.tvb(reader.at + 4, 4):uint(), reader.tvb(reader.at + 12, 4):uint()
  packet.version = version
  if version == 1 and kind <= 4 then
    show_version_1(packet, tree, reader)
  elseif version == 2 and kind <= 255 then
    show_version_2(packet, tree, reader)
    if packet.header then
      describe(packet, "RPCoRDMA2", packet.header)
    end
  end
end
