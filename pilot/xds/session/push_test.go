package session

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

func TestMergedPushes(t *testing.T) {
	f := xdstest.NewTranslator()
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	a := &Push{Snapshot: f.Publish(false, "eds a=1"), Triggers: map[string]int{"endpoint": 1}, Received: late, Queued: early}
	b := &Push{Snapshot: f.Publish(false, "eds a=2"), Triggers: map[string]int{"endpoint": 2, "config": 1}, Received: early, Queued: late}
	m := (*Push)(nil).Merge(a).Merge(b)
	if m.Snapshot != b.Snapshot || m.Full || m.Received != early || m.Queued != early {
		t.Errorf("%+v", m)
	}
	if diff := cmp.Diff(map[string]int{"endpoint": 3, "config": 1}, m.Triggers); diff != "" {
		t.Error(diff)
	}
	if len(b.Triggers) != 2 || a.Triggers["endpoint"] != 1 {
		t.Error("what was merged is shared by other streams and was changed")
	}
	if m := a.Merge(&Push{Snapshot: b.Snapshot, Full: true}); !m.Full || m.Received != late {
		t.Errorf("%+v", m)
	}
}
