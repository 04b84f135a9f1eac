package peermetadata_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/peermetadata"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, peermetadata.New()) }
