package names

// HasPersistentSession reports whether labels of a service ask for persistent sessions: a cookie or a header sends a
// client's requests to one endpoint.
func HasPersistentSession(labels map[string]string) bool {
	return labels[LabelSession] != "" || labels[LabelSessionHeader] != ""
}
