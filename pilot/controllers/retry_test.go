package controllers

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestPausesAreDropped: what is known of writes is bounded by how many are made in pauseReset.
func TestPausesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pauses{}
		p.reset()
		for i := range 5000 {
			p.wrote(reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(i)}}, "")
			time.Sleep(time.Second)
		}
		if n := len(p.writes); n > 200 {
			t.Errorf("%d writes are remembered", n)
		}
	})
}
