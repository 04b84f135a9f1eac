package bootstrap

import "fmt"

// inForce fails if the server says that the newest Snapshot is in force, and some client has something else. A Snapshot
// that comes meanwhile ends the comparison.
func (h *history) inForce() error {
	all := h.snapshots()
	s := all[len(all)-1]
	if p := h.server.discovery.Progress(s.Revision, true, 0); !p.InForce() {
		return nil
	}
	for _, c := range h.clients {
		want, err := h.wanted(s, c.node)
		if err != nil {
			return err
		}
		if d := c.differ(want); d != "" && h.newest() == s.Revision {
			return fmt.Errorf("revision %d is said to be in force, and %v has something else:\n%s", s.Revision, c, d)
		}
	}
	return nil
}

// newest returns the revision of the newest Snapshot, which may not have been published yet.
func (h *history) newest() uint64 {
	all := h.snapshots()
	return all[len(all)-1].Revision
}
