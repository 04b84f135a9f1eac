package jwt_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/feature/featuretest"
	"github.com/istiod-lite/istiod-lite/pilot/feature/jwt"
)

func TestGoldens(t *testing.T) { featuretest.Run(t, jwt.New(jwt.Server)) }
