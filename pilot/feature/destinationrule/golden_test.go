package destinationrule_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, destinationrule.New()) }
