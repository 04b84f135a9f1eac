package virtualservice_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/virtualservice"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, virtualservice.New()) }
