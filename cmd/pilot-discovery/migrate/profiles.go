package migrate

import (
	_ "embed"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed profiles.yaml
var profilesTable []byte

// profileValues is what a profile of istioctl sets. Its nodes have no lines.
type profileValues struct {
	Charts     string // the profile of Istio's charts that belongs to it
	Components yaml.Node
	Values     yaml.Node // of the chart istiod
	Gateways   yaml.Node
}

// profiles returns the profiles of istioctl by name.
var profiles = sync.OnceValue(func() map[string]profileValues {
	var doc yaml.Node
	list := map[string]profileValues{}
	err := yaml.Unmarshal(profilesTable, &doc)
	if err == nil {
		err = withLine(resolved(&doc), 0).Decode(&list)
	}
	if err != nil {
		panic(err) // unreachable: the file is part of the program, and the scripts migrate-operator read it
	}
	return list
})
