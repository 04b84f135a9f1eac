package bootstrap

import (
	"log/slog"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// recentFindings is the number of findings of translations that are logged once.
const recentFindings = 1024

// logFindings returns a function that logs findings of translations. One that came up before is logged again only after
// many others.
func logFindings(logger *slog.Logger) func(diag.Diagnostic) {
	var mu sync.Mutex
	seen, err := simplelru.NewLRU[diag.Diagnostic, struct{}](recentFindings, nil)
	if err != nil {
		panic(err) // only for a size below one
	}
	return func(d diag.Diagnostic) {
		mu.Lock()
		known := seen.Contains(d)
		seen.Add(d, struct{}{})
		mu.Unlock()
		if !known {
			logger.Warn("finding", "finding", d.String())
		}
	}
}
