package suite

import "slices"

// The types of WebAssembly's binary format, and of the module's functions: the numbers of parameters and results.
const i32, function = 0x7f, 0x60

// WasmModule returns a WebAssembly module for version 0.2.1 of the Proxy-Wasm ABI (https://github.com/proxy-wasm/spec).
// The module adds the header x-wasm to responses, with the configuration of the plugin.
//
// Its memory has the address of the configuration at 0, its length at 4, the name of the header at 16, and the
// configuration at 1024, where all allocations of the host are.
func WasmModule() []byte {
	const header = "x-wasm"
	types := [][2]int{{5, 1}, {1, 1}, {2, 1}, {2, 0}, {3, 1}, {0, 0}} // of functions
	var typeSection [][]byte
	for _, t := range types {
		takes, returns := slices.Repeat([]byte{i32}, t[0]), slices.Repeat([]byte{i32}, t[1])
		typeSection = append(typeSection, slices.Concat([]byte{function, byte(t[0])}, takes, []byte{byte(t[1])}, returns))
	}
	imports := [][]byte{
		slices.Concat(text("env"), text("proxy_get_buffer_bytes"), []byte{0, 0}),
		slices.Concat(text("env"), text("proxy_add_header_map_value"), []byte{0, 0}),
	}
	// Instructions: i32.const 0x41, local.get 0x20, i32.load 0x28, call 0x10, drop 0x1a, end 0x0b.
	functions := []struct {
		typ   byte
		names []string
		body  []byte
	}{
		{5, []string{"proxy_abi_version_0_2_1", "_initialize"}, nil},
		{1, []string{"proxy_on_memory_allocate", "malloc"}, []byte{0x41, 0x80, 0x08}}, // 1024
		{3, []string{"proxy_on_context_create"}, nil},
		{2, []string{"proxy_on_vm_start"}, []byte{0x41, 1}},
		{2, []string{"proxy_on_configure"}, []byte{0x41, 7, 0x41, 0, 0x20, 1, 0x41, 0, 0x41, 4, 0x10, 0, 0x1a, 0x41, 1}},
		{4, []string{"proxy_on_response_headers"}, []byte{
			0x41, 2, 0x41, 16, 0x41, byte(len(header)), 0x41, 0, 0x28, 2, 0, 0x41, 4, 0x28, 2, 0, 0x10, 1, 0x1a, 0x41, 0,
		}},
	}
	var of, bodies [][]byte
	exports := [][]byte{append(text("memory"), 2, 0)}
	for i, f := range functions {
		of = append(of, []byte{f.typ})
		for _, name := range f.names {
			exports = append(exports, append(text(name), 0, byte(len(imports)+i)))
		}
		bodies = append(bodies, sized(slices.Concat([]byte{0}, f.body, []byte{0x0b})))
	}
	data := slices.Concat([]byte{0, 0x41, 16, 0x0b}, text(header))
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, typeSection...), section(2, imports...), section(3, of...),
		section(5, []byte{0, 1}), section(7, exports...), section(10, bodies...), section(11, data))
}

// section returns a section of a module: a list of entries.
func section(id byte, entries ...[]byte) []byte {
	return append([]byte{id}, sized(slices.Concat([]byte{byte(len(entries))}, slices.Concat(entries...)))...)
}

// sized returns bytes with their length in front, which is less than 2^14.
func sized(b []byte) []byte {
	n := len(b)
	return slices.Concat([]byte{byte(n&0x7f | 0x80), byte(n >> 7)}, b)
}

func text(s string) []byte { return sized([]byte(s)) }
