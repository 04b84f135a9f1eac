package envoyfilter_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/envoyfilter"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, envoyfilter.New()) }
