package authz_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, authz.New()) }
