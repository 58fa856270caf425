local specification = _G.xdrgen_wireshark.specification("constructs", "CONSTRUCTS")
specification:enum("colour", {
  [-2] = "BLUE",
  [1] = "RED",
})
specification:typedef({ "hash", "opaque", length = 5 })
specification:typedef({ "label", "string", max = 20 })
specification:typedef({ "handle", "opaque", max = 16 })
specification:typedef({ "row", "int", elements = true, max = 3 })
specification:typedef({ "matrix", "row", elements = true, max = 2 })
specification:struct("point", {
  { "x", "int" },
  { "y", "int" },
})
specification:struct("node", {
  { "value", "int" },
})
specification:struct("tree", {
  { "value", "int" },
  { "left", "tree", optional = true },
  { "right", "tree", optional = true },
})
specification:union("by_enum", { "c", "colour" }, {
  arms = {
    { cases = { 1 }, field = { "red", "int" } },
    { cases = { -2 } },
  },
})
specification:union("by_hyper", { "n", "unsigned hyper" }, {
  arms = {
    { cases = { "18446744073709551615" }, field = { "last", "label" } },
  },
  default = { "other", "point" },
})
specification:union("by_int", { "n", "int" }, {
  arms = {
    { cases = { -1 }, field = { "minus", "int" } },
  },
  default = true,
})
specification:union("by_unsigned", { "n", "unsigned int" }, {
  arms = {
    { cases = { 4000000000 }, field = { "large", "bool" } },
  },
})
specification:union("by_bool", { "yes", "bool" }, {
  arms = {
    { cases = { 1 }, field = { "value", "handle" } },
    { cases = { 0 } },
  },
})
specification:union("layout", { "kind", "int" }, {
  arms = {
    { cases = { 1 }, field = { "at", "point" } },
    { cases = { 2 }, field = { "bytes", "opaque", max = 16, own_length = true } },
  },
  default = true,
  opaque = true,
})
specification:struct("scalars", {
  { "i", "int" },
  { "u", "unsigned int" },
  { "h", "hyper" },
  { "uh", "unsigned hyper" },
  { "yes", "bool" },
  { "f", "float" },
  { "d", "double" },
  { "q", "quadruple" },
  { "c", "C char" },
  { "uc", "C unsigned char" },
  { "s", "C short" },
  { "us", "C unsigned short" },
  { "tint", "colour" },
})
specification:struct("sequences", {
  { "fixed", "hash" },
  { "variable", "opaque", max = 8 },
  { "nothing", "opaque", max = 8 },
  { "text", "label" },
  { "pair", "point", count = 2 },
  { "rows", "matrix" },
  { "present", "point", optional = true },
  { "absent", "point", optional = true },
  { "list", "node", list = "any" },
  { "no_list", "node", list = "any" },
  { "at_least_one", "node", list = "nonempty" },
  { "root", "tree" },
})
specification:struct("unions", {
  { "red", "by_enum" },
  { "blue", "by_enum" },
  { "last", "by_hyper" },
  { "other", "by_hyper" },
  { "minus", "by_int" },
  { "large", "by_unsigned" },
  { "yes", "by_bool" },
  { "point_arm", "layout" },
  { "bytes_arm", "layout" },
  { "void_arm", "layout" },
})
specification:program("CONSTRUCTS", 0x20000099, {
  { name = "CONSTRUCTS_V1", number = 1, procedures = {
    { name = "NULL", number = 0, args = {} },
    { name = "SCALARS", number = 1, args = { { "scalars", "scalars" } }, result = { "result", "scalars" } },
    { name = "SEQUENCES", number = 2, args = { { "sequences", "sequences" } } },
    { name = "UNIONS", number = 3, args = { { "unions", "unions" } } },
    { name = "SEVERAL", number = 4, args = { { "arg", "int" }, { "label", "label" }, { "point", "point" } } },
    { name = "NUMBERS", number = 5, args = { { "arg", "int", elements = true } } },
    { name = "TREE", number = 6, args = { { "tree", "tree" } } },
    { name = "LIST", number = 7, args = { { "node", "node", list = "nonempty" } } },
  } },
  { name = "CONSTRUCTS_V2", number = 2, procedures = {
    { name = "PLACED", number = 1, args = { { "handle", "handle", eligible = true } }, result = { "result", "handle", eligible = true } },
  } },
})
specification:register()
