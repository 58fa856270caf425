-- Reading of payload streams (RFC 8166 section 3.4) from which items may have been moved to chunks.

-- Ends the dissection of a message. The message is shown as far as it could be read.
local function fail(why, is_cut)
  error({ why = why, is_cut = is_cut }, 0)
end

-- Returns `true` if a number has this bit. Versions of Lua have different libraries for this.
local function has_bit(number, bit)
  return math.floor(number / bit) % 2 == 1
end

local Reader = {}
Reader.__index = Reader

-- A reader of the bytes of `tvb` from `at` up to `stop`. `is_cut`: the capture lacks the end of the message.
function Reader.new(tvb, at, stop, is_cut)
  local len = tvb:len()
  return setmetatable({
    tvb = tvb,
    at = math.min(at, len),
    stop = math.min(stop, len),
    wire_len = stop - at,
    is_cut = is_cut or stop > len,
    -- The position in the stream before reduction.
    position = 0,
    reads = {},
    writes = {},
    unused = {},
  }, Reader)
end

function Reader:left()
  return self.stop - self.at
end

-- Returns the bytes from `from` up to the current place.
function Reader:since(from)
  return self.tvb(from, self.at - from)
end

-- Returns all bytes from the current place on.
function Reader:rest()
  return self.tvb(self.at, self.stop - self.at)
end

function Reader:need(len)
  if len > self.stop - self.at then
    if self.is_cut then
      fail("the rest of the message was not captured", true)
    end
    fail(string.format("%.0f bytes are expected, but the message ends after %d", len, self.stop - self.at))
  end
end

function Reader:take(len)
  self:need(len)
  local range = self.tvb(self.at, len)
  self.at = self.at + len
  self.position = self.position + len
  return range
end

function Reader:word()
  return self:take(4):uint()
end

function Reader:flag()
  local word = self:word()
  if word > 1 then
    fail(word .. " is not a boolean")
  end
  return word == 1
end

-- Returns a reader of a range that this one has read.
function Reader:within(range)
  return Reader.new(self.tvb, range:offset(), range:offset() + range:len())
end

-- Returns a reader of the same bytes that does not move this one.
function Reader:copy()
  return Reader.new(self.tvb, self.at, self.stop, self.is_cut)
end

local function padded(len)
  return len + (4 - len % 4) % 4
end

-- Takes the chunk of an item that begins here. A Read chunk is found by its position. A Write chunk belongs to the next
-- eligible item; it is empty if the responder left the item in the message (RFC 8166 section 4.3.2).
function Reader:take_chunk(is_eligible, item_len)
  while self.reads[1] and self.reads[1].position < self.position do
    table.insert(self.unused, table.remove(self.reads, 1))
  end
  local chunk
  if self.reads[1] and self.reads[1].position == self.position and item_len ~= 0 then
    chunk = table.remove(self.reads, 1)
  elseif is_eligible then
    chunk = table.remove(self.writes, 1)
    if chunk and chunk.length == 0 then
      chunk = nil
    end
  end
  if chunk then
    self.position = self.position + padded(item_len or chunk.length)
  end
  return chunk
end

-- Returns the next Write chunk with contents.
function Reader:next_write()
  while self.writes[1] and self.writes[1].length == 0 do
    table.remove(self.writes, 1)
  end
  return self.writes[1]
end

-- Returns the chunks that no item used.
function Reader:unused_chunks()
  local found = {}
  for _, list in ipairs({ self.unused, self.reads, self.writes }) do
    for _, chunk in ipairs(list) do
      if chunk.length > 0 then
        table.insert(found, chunk)
      end
    end
  end
  return found
end
