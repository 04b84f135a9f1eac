// Package lua checks whether the LuaJIT of proxies loads a script, without running it. An Envoy refuses a whole
// listener if its script does not load.
//
// The parser follows the grammar of Lua 5.1 with what LuaJIT adds in the mode that Envoy builds: numbers such as 1LL,
// the escapes \z and \u{…}, letters beyond ASCII, goto, and a break before other statements (lex.go, parse.go,
// statement.go). LuaJIT compiles while it parses, so a script also fails where it needs more registers, locals,
// upvalues, constants, nested levels or instructions than a function may have. The parser therefore keeps the same
// account of registers as a compiler, without code (registers.go).
//
// Envoy passes a script to LuaJIT as a C string, so the text behind a NUL byte is not read. Envoy runs the statements
// outside of functions; this package does not check their effect.
//
// The package is pure, and its work is proportional to the script.
package lua
