package bootstrap

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
