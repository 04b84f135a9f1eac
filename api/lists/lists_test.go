package lists_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// TestEmpty: no item makes no slice, so that JSON and comparisons see nil.
func TestEmpty(t *testing.T) {
	if lists.Map([]int{}, strconv.Itoa) != nil || lists.Filter([]int{1}, func(int) bool { return false }) != nil {
		t.Error("an empty list is not nil")
	}
}

func TestOrder(t *testing.T) {
	if got := lists.Map([]int{3, 1, 2}, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Error(got)
	}
	if got := lists.Filter([]int{3, 1, 2}, func(n int) bool { return n > 1 }); !slices.Equal(got, []int{3, 2}) {
		t.Error(got)
	}
}

// TestPut: a map is made with its first entry, and keeps its entries.
func TestPut(t *testing.T) {
	var m map[string]map[int]bool
	lists.Put(&m, "a", nil)
	lists.PutIn(m, "a", 1, true)
	lists.PutIn(m, "a", 2, true)
	lists.PutIn(m, "b", 1, true)
	if len(m) != 2 || len(m["a"]) != 2 || !m["b"][1] {
		t.Error(m)
	}
}
