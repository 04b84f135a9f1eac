package telemetry_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, telemetry.New()) }
