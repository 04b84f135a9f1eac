package compliance_test

import (
	"testing"

	policies "github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/pilot/feature/compliance"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, compliance.New(policies.None)) }
