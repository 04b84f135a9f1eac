package diag

import (
	"log/slog"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// recentFindings is how many findings a function that LogOnce returned remembers.
const recentFindings = 1024

// LogOnce returns a function that logs findings. It logs a finding again only after many others.
func LogOnce(logger *slog.Logger) func(Diagnostic) {
	var mu sync.Mutex
	seen, err := simplelru.NewLRU[Diagnostic, struct{}](recentFindings, nil)
	if err != nil {
		panic(err) // unreachable: the size is positive
	}
	return func(d Diagnostic) {
		mu.Lock()
		known := seen.Contains(d)
		seen.Add(d, struct{}{})
		mu.Unlock()
		if !known {
			logger.Warn("finding", "finding", d.String())
		}
	}
}
