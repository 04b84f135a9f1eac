package mongo_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mongo"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, mongo.New()) }
