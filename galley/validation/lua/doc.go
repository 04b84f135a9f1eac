// Package lua finds out whether a script is one that the LuaJIT of proxies loads, without running it. An Envoy refuses
// a whole listener because of a script that does not.
//
// What LuaJIT takes beyond Lua 5.1 is written as Lua 5.1 for the parser (source.go), and what a parser does not look at
// is judged on its tree (tree.go): breaks outside of loops, labels that are not there, arguments that a function has
// not got. What a script does when it runs is not looked at, though Envoy runs what stands outside of functions.
//
// It is pure, and its work is proportional to the script.
package lua
