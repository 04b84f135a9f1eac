package xds

// Later returns the number of connected proxies that connected after a revision was published. Their first
// configuration is of that revision or a later one, and no push of the revision concerned them. newest is the highest
// revision that was published when a connected proxy connected.
func (s *Server) Later(revision uint64) (n int, newest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if !c.profile.workload {
			continue
		}
		if newest = max(newest, c.first); c.first >= revision {
			n++
		}
	}
	return n, newest
}
