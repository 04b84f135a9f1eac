package upgrade

import (
	"fmt"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
)

// TestRevisions follows charts/README.md: the tag of a revision of the release before moves to a revision of this
// release, back, and there again. Then the first revision is uninstalled.
func TestRevisions(t *testing.T) {
	w := start(t, "previous-base", "blue-stable")
	w.installed["blue"] = w.installed["istiod"]
	delete(w.installed, "istiod")
	w.rolledOut(install.Namespace, "istiod-blue")
	w.apply(fmt.Sprintf(application, "istio.io/rev: stable") + "---" + fmt.Sprintf(routes, 0))
	w.launch("one")
	one := set{"one", "istiod-blue"}
	w.inForce("a tag of the release before", one)

	w.install("base", "base")
	w.install("green", "green")
	w.rolledOut(install.Namespace, "istiod-green")
	w.inForce("a second revision beside it", one)

	move := func(to, manifests, from, without string) {
		w.install(to, manifests)
		w.install(from, without)
		w.rolledOut(install.Namespace, "istiod-green")
		w.rolledOut(install.Namespace, "istiod-blue")
	}
	move("green", "green-stable", "blue", "blue")
	w.launch("two")
	two := set{"two", "istiod-green"}
	w.inForce("the tag has moved", one, two)

	move("blue", "blue-stable", "green", "green")
	w.launch("three")
	three := set{"three", "istiod-blue"}
	w.inForce("the tag has moved back", one, two, three)

	move("green", "green-stable", "blue", "blue")
	w.leave("one")
	w.leave("three")
	w.uninstall("blue")
	w.inForce("the first revision is uninstalled", two)
}
