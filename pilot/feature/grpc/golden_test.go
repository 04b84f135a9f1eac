package grpc_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/grpc"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, grpc.New()) }
