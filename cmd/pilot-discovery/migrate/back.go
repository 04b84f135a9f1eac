package migrate

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

//go:embed back.txt
var backTable string

// backRows returns the rows about values and arguments that Istio's charts and istiod have not.
var backRows = sync.OnceValue(func() []settings.Setting { return settings.Parse(backTable) })

// judgeBack judges values of a chart of this tree for Istio's chart of the same name.
func (j *valueJudge) judgeBack() {
	j.lift()
	j.addRunning()
	if budget := get(j.root, "podDisruptionBudget"); budget != nil && j.chart == "istiod" {
		putAt(j.root, "pdb", budget, budget)
		remove(j.root, "podDisruptionBudget")
	}
	j.walkBack(j.root, nil)
}

// walkBack judges the values below a mapping.
func (j *valueJudge) walkBack(n *yaml.Node, path []string) {
	each(n, func(key, value *yaml.Node) {
		path := append(slices.Clone(path), key.Value)
		name := strings.Join(path, ".")
		row := settings.Find(backRows(), j.chart+":"+strings.TrimPrefix(name, "pilot."))
		switch {
		case row != nil:
			if isSet(value, row.Effect) {
				j.addRow(key, value, name, row)
			}
			j.dropped[key] = true
		case key.Value == "env" && j.chart == "istiod" && value.Kind == yaml.MappingNode:
			each(value, func(key, _ *yaml.Node) { j.dropped[key] = !j.variableBack(key, name) })
		case key.Value == "envVarFrom" && j.chart == "istiod":
			value.Content = slices.DeleteFunc(value.Content, func(x *yaml.Node) bool {
				of := get(x, "name")
				return of != nil && !j.variableBack(of, name)
			})
		case key.Value == "extraContainerArgs":
			j.argumentsBack(value, name)
		case key.Value == "meshConfig":
			each(value, func(key, _ *yaml.Node) { j.works(key) })
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			j.walkBack(value, path)
		default:
			j.works(key)
		}
	})
}

// variableBack judges a variable of the environment, and reports whether istiod reads it.
func (j *valueJudge) variableBack(name *yaml.Node, path string) bool {
	if env.OfIstiod(name.Value) {
		j.works(name)
		return true
	}
	j.add(name, migration.Point{InTheWay: true, Text: fmt.Sprintf("%s.%s has no effect there: istiod 1.31 does not read it", path, name.Value),
		Fix: "remove it, or check that nothing depends on it"})
	return false
}

// argumentsBack judges the arguments of the server. What istiod has not is left out.
func (j *valueJudge) argumentsBack(list *yaml.Node, path string) {
	var kept []*yaml.Node
	for i := 0; i < len(list.Content); i++ {
		at := list.Content[i]
		name, _, joined := strings.Cut(strings.TrimLeft(at.Value, "-"), "=")
		args := []*yaml.Node{at}
		if !joined && i+1 < len(list.Content) && !strings.HasPrefix(list.Content[i+1].Value, "-") {
			i++
			args = append(args, list.Content[i])
		}
		row := settings.Find(backRows(), "argument:"+name)
		if row == nil {
			kept = append(kept, args...)
			j.works(at)
			continue
		}
		p := migration.Point{InTheWay: row.Effect == settings.Without, Text: fmt.Sprintf("%s: --%s has no effect there: %s", path, name, row.Why)}
		if row.Effect == settings.Elsewhere {
			p.Text, p.Fix = fmt.Sprintf("%s: --%s has another place", path, name), row.Why
		}
		j.add(at, p)
	}
	list.Content = kept
}
