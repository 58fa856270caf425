-- The messages of a packet: Sends of iWARP and of InfiniBand or RoCE, and RPC messages that Wireshark found on other
-- transports.

-- Dissectors of Lua run after those of Wireshark, and find the headers in the fields of these.
local FIELDS = {}
for name, field in pairs({
  ulpdu_len = "iwarp_mpa.ulpdulength",
  ddp = "iwarp_ddp.tagged_flag",
  stream = "tcp.stream",
  opcode = "infiniband.bth.opcode",
  icrc = "infiniband.invariant.crc",
  rpc = "rpc",
  rpc_xid = "rpc.xid",
  src4 = "ip.src",
  dst4 = "ip.dst",
  src6 = "ipv6.src",
  dst6 = "ipv6.dst",
  slid = "infiniband.lrh.slid",
  dlid = "infiniband.lrh.dlid",
}) do
  local exists, extractor = pcall(Field.new, field)
  FIELDS[name] = exists and extractor or function() end
end

-- Returns the address of a host as it is in the packet. Wireshark may resolve the address of `pinfo` later.
local function host(version_4, version_6, lid)
  local field = version_4() or version_6() or lid()
  return field and tostring(field.range) or ""
end

-- What is known about the connections in the capture. The first pass over the packets fills it; later ones, in any
-- order, find the same again.
local function forget()
  R.state = {
    -- Calls by sender, receiver and XID, and the call of each message.
    calls = {},
    identities = {},
    -- Messages that are continued, and the payload of those that end one, by packet and part.
    open = {},
    joined = {},
    -- The newest Send of each flow, and what each part of a packet completes.
    sends = {},
    parts = {},
  }
end
forget()

-- Returns a reader of bytes that are in several packets.
function R.reader_of(bytes, name, is_cut)
  local hex = bytes:gsub(".", function(byte) return string.format("%02x", byte:byte()) end)
  local tvb = ByteArray.new(hex):tvb(name)
  return Reader.new(tvb, 0, tvb:len(), is_cut)
end

-- Handles a part of a Send in `flow`, the direction of a connection. `sequence` identifies the Send; a part without it
-- continues the one before. `place` is the number of bytes or packets before the part, which `unit` counts.
local function send_part(packet, tree, flow, sequence, place, unit, is_last, reader)
  packet.parts = packet.parts + 1
  packet.part = packet.number .. "." .. packet.parts
  local found = R.state.parts[packet.part]
  if found == nil then
    local open = R.state.sends[flow]
    if place == 0 then
      open = { sequence = sequence, bytes = {}, len = 0, count = 0 }
      R.state.sends[flow] = open
    elseif open and open.sequence ~= sequence then
      open = nil
    end
    found = { sequence = sequence }
    if place == 0 and is_last then
      found.is_single = true
    elseif open and open[unit] == place then
      table.insert(open.bytes, reader:rest():raw())
      open.len = open.len + reader.wire_len
      open.count = open.count + 1
      open.is_cut = open.is_cut or reader.is_cut
      if is_last then
        found.bytes, found.count, found.is_cut = table.concat(open.bytes), open.count, open.is_cut
      end
    end
    R.state.parts[packet.part] = found
  end
  packet.sequence = found.sequence
  if found.is_single then
    show_send(packet, tree, reader)
  elseif found.bytes then
    show_send(packet, tree, R.reader_of(found.bytes, "Send of " .. found.count .. " packets", found.is_cut))
  end
end

-- Sends of iWARP (RFC 5040 section 4.3): untagged DDP segments to queue 0.
local function iwarp(packet, tree)
  local segments = { FIELDS.ddp() }
  for index, length in ipairs({ FIELDS.ulpdu_len() }) do
    -- Wireshark does not dissect segments that are cut. Without markers, they follow their length.
    local segment = segments[index]
    local tvb, at = length.source, length.offset + 2
    if segment then
      tvb, at = segment.source, segment.offset
    end
    local stop = at + length.value
    if tvb and at + 18 <= tvb:len() and stop >= at + 18 then
      local control, opcode = tvb(at, 1):uint(), tvb(at + 1, 1):uint() % 16
      local is_tagged, is_last = has_bit(control, 0x80), has_bit(control, 0x40)
      if not is_tagged and opcode >= 3 and opcode <= 6 and tvb(at + 6, 4):uint() == 0 then
        local sequence, offset = tvb(at + 10, 4):uint(), tvb(at + 14, 4):uint()
        send_part(packet, tree, packet.from, sequence, offset, "len", is_last, Reader.new(tvb, at + 18, stop))
      end
    end
  end
end

-- The opcodes of Sends on reliable connections: `true` for the first and the last packet, and the length of the header
-- that follows the BTH.
local SENDS = {
  [0x00] = { true, false, 0 },
  [0x01] = { false, false, 0 },
  [0x02] = { false, true, 0 },
  [0x03] = { false, true, 4 },
  [0x04] = { true, true, 0 },
  [0x05] = { true, true, 4 },
  [0x16] = { false, true, 4 },
  [0x17] = { true, true, 4 },
}
local BTH_LEN, ICRC_LEN = 12, 4

-- Sends of InfiniBand and RoCE.
local function infiniband(packet, tree)
  local ends = { FIELDS.icrc() }
  for index, opcode in ipairs({ FIELDS.opcode() }) do
    local tvb, at = opcode.source, opcode.offset
    local kind = SENDS[opcode.value]
    if tvb and kind and at + BTH_LEN <= tvb:len() then
      local pad = math.floor(tvb(at + 1, 1):uint() / 16) % 4
      local queue, sequence = tvb(at + 5, 3):uint(), tvb(at + 9, 3):uint()
      local reported = tvb:reported_len() - ICRC_LEN
      local stop = (ends[index] and ends[index].source:len() == tvb:len() and ends[index].offset or reported) - pad
      local reader = Reader.new(tvb, at + BTH_LEN + kind[3], stop)
      local flow = packet.from .. "|" .. packet.to .. "|" .. queue
      -- The packets of a message have consecutive numbers of 24 bits.
      local open = R.state.sends[flow]
      local first = (kind[1] or not open) and sequence or open.sequence
      local place = kind[1] and 0 or (sequence - first) % 0x1000000
      send_part(packet, tree, flow, first, place, "count", kind[2], reader)
    end
  end
end

-- RPC messages on TCP and UDP, and long calls and replies that Wireshark has taken from chunks.
local function other_transports(packet, tree)
  local is_rdma = FIELDS.ddp() ~= nil or FIELDS.opcode() ~= nil
  -- On TCP, the field of the protocol begins with the record mark.
  for _, rpc in ipairs({ (is_rdma and FIELDS.rpc or FIELDS.rpc_xid)() }) do
    local tvb, at = rpc.source, rpc.offset
    if tvb and at + 8 <= tvb:len() then
      local xid, is_call = tvb(at, 4):uint(), tvb(at + 4, 4):uint() == CALL
      -- Wireshark also puts reduced items back into calls that were shown with their Send.
      if not packet.shown_rpc[xid .. tostring(is_call)] and not (is_rdma and is_known(packet, is_call, xid)) then
        local stop = tvb:len()
        if at >= 4 and packet.stream then
          -- The mark of a record with one fragment precedes it.
          stop = math.min(stop, at + tvb(at - 4, 4):uint() % 0x80000000)
        end
        show_rpc(packet, tree, Reader.new(tvb, at, stop, tvb:reported_len() > tvb:len()), { reads = {}, writes = {} })
      end
    end
  end
end

local transport = R.transport.proto
transport.init = forget

function transport.dissector(_, pinfo, tree)
  local stream = FIELDS.stream()
  local packet = {
    pinfo = pinfo,
    number = pinfo.number,
    stream = stream and stream.value,
    items = 0,
    parts = 0,
    shown_rpc = {},
  }
  -- Queue pairs are known by their hosts: a packet names only the receiver's.
  local source, destination = host(FIELDS.src4, FIELDS.src6, FIELDS.slid), host(FIELDS.dst4, FIELDS.dst6, FIELDS.dlid)
  local ports = stream ~= nil
  packet.from = ports and string.format("%d:%s:%d", packet.stream, source, pinfo.src_port) or source
  packet.to = ports and string.format("%d:%s:%d", packet.stream, destination, pinfo.dst_port) or destination
  for _, dissect in ipairs({ iwarp, infiniband, other_transports }) do
    local done, problem = pcall(dissect, packet, tree)
    if not done then
      tree:add_proto_expert_info(R.transport.malformed, "the dissector failed: " .. tostring(problem))
    end
  end
end

-- Keeps Wireshark's dissector of version 1 from taking messages of version 2 for malformed ones of its own. They are
-- shown later.
local function is_version_2(tvb)
  local segments = { FIELDS.ddp() }
  local segment, opcode = segments[#segments], FIELDS.opcode()
  local is_other = segment and segment.value or opcode and SENDS[opcode.value] == nil
  if tvb:len() < 20 or is_other then
    return false
  end
  return tvb(4, 4):uint() == 2 and R.transport.names.rdma_htype[tvb(12, 4):uint()] ~= nil
end

for _, name in ipairs({ "iwarp_ddp_rdmap", "infiniband.payload" }) do
  pcall(transport.register_heuristic, transport, name, is_version_2)
end

register_postdissector(transport)
