package mtls_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, mtls.New(false, false)) }
