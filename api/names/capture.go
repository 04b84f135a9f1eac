package names

import (
	"strconv"
	"strings"
)

// LeftToApplication returns the annotation of a Pod that keeps connections to a port from its proxy, or "".
func LeftToApplication(annotations map[string]string, port uint32) string {
	included, set := annotations[AnnotationIncludeInboundPorts]
	switch {
	case port == 0:
	case ListsPort(annotations[AnnotationExcludeInboundPorts], port):
		return AnnotationExcludeInboundPorts
	case set && strings.TrimSpace(included) != "*" && !ListsPort(included, port):
		return AnnotationIncludeInboundPorts
	}
	return ""
}

// ListsPort reports whether a list of ports, separated by commas, has a port.
func ListsPort(list string, port uint32) bool {
	for text := range strings.SplitSeq(list, ",") {
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16); err == nil && uint32(n) == port {
			return true
		}
	}
	return false
}
