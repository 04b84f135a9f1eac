package xds

// Later returns the number of connected proxies whose first configuration is of a revision or a later one: they
// connected after it was published, and no push of it concerned them. newest is the newest revision with which a proxy
// began.
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
