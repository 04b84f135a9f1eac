package validation

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

func BenchmarkDecode(b *testing.B) {
	text := []byte(strings.Repeat(document(kinds.VirtualService, mistakes()[kinds.VirtualService].body)+"---\n", 1000))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		decode(string(text))
	}
}

// The file that costs most for its size: nothing but small values.
func BenchmarkDecodeWorst(b *testing.B) {
	text := "[" + strings.Repeat("1,", 1<<19-10) + "1]"
	b.ReportAllocs()
	for b.Loop() {
		decode(text)
	}
}
