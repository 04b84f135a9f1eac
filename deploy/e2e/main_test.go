package e2e

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

var network *pods.Network

// TestMain runs the tests once for each user, and prints the matrix of all of them.
func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: suite.Programs, AsRoot: true, Report: report, Network: func(n *pods.Network) { network = n }})
}
