package login

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: suite.ProgramsWith("oauth2-proxy", "mockoidc"), Network: func(n *pods.Network) { network = n },
	})
}
