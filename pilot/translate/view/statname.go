package view

import (
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/registry"
)

// StatName returns the name of a service's port in statistics, by a pattern with variables such as %SERVICE%. target is
// the workload's port, 0 for outgoing traffic. An unknown variable stays unchanged.
func StatName(pattern string, s *registry.Service, port, target uint32, subset string) string {
	short, portName := s.Host, ""
	if s.Provider == registry.Kubernetes {
		short = s.Name + "." + s.Namespace
	}
	if p := s.Port(port); p != nil {
		portName = p.Name
	}
	number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	return strings.NewReplacer(
		"%SERVICE%", short, "%SERVICE_NAME%", s.Name, "%SERVICE_FQDN%", s.Host, "%SERVICE_PORT%", number(port),
		"%TARGET_PORT%", number(target), "%SERVICE_PORT_NAME%", portName, "%SUBSET_NAME%", subset,
	).Replace(pattern)
}
