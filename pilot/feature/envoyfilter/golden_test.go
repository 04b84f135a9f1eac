package envoyfilter_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/envoyfilter"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
)

// One golden has a script that is none: patches are up to their authors.
func TestGoldens(t *testing.T) {
	featuretest.Run(t, envoyfilter.New(), "broken: web-0.a: lds virtualInbound")
}
