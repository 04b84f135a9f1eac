package analysis

import (
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// SaysIdle reports whether a finding says that its object, as a whole, reaches no proxy.
func SaysIdle(d diag.Diagnostic) bool {
	switch kind, _, _ := strings.Cut(d.Object, " "); d.Code {
	case codeNamespace, codeSelector:
		return true
	case codeWorkloads: // proxies have a Service without endpoints too, and answer its requests with 503
		return kind != kinds.Service.Name && kind != kinds.ServiceEntry.Name
	}
	return false
}
