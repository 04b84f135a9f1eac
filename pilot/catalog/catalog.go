package catalog

import (
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
)

// Features returns all features in order.
func Features() []*feature.Feature {
	return []*feature.Feature{
		mtls.New(),
	}
}
