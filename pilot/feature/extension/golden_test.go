package extension_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/extension"
	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, extension.New(extension.Authn)) }
