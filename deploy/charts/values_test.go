package charts

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The charts accept the values that migrate names as without effect, and the notes of the charts name them.
func TestValuesWithoutEffect(t *testing.T) {
	objects := []string{"ambient", "waypoint", "experimental", "taint", "_internal_defaults_do_not_set", "agentgateway", "certificates"}
	for _, h := range helms(t) {
		for _, name := range []string{"istiod", "base", "gateway"} {
			args := []string{"install", name, chart(t, name), "-n", "istio-system", "--dry-run=client", "--set", "profile=a"}
			var rows []string
			for _, v := range settings.Values() {
				of, value, _ := strings.Cut(v.Name, ":")
				if of != name || v.Effect == settings.Elsewhere || v.Effect == settings.LeftOut || value == "ztunnel" { // Istio's chart has the key ztunnel for another chart
					continue
				}
				set := value + "=a"
				for _, object := range objects {
					if value == object || strings.HasSuffix(value, "."+object) {
						set = value + ".a=b"
					}
				}
				switch value {
				case "resourceScope", "global.platform", "platform":
					set = value + "=gke"
				case "istiodRemote.enabledLocalInjectorIstiod", "global.proxy.enableCoreDump", "unprivilegedPort", "global.proxy.forceApplyIptables":
					set = value + "=true"
				}
				rows, args = append(rows, value), append(args, "--set", set)
			}
			if h.Name == "helm3" { // Helm 3 needs a cluster even for a dry run
				continue
			}
			out, err := h.Run(t.Context(), args...)
			must.Succeed(t, err)
			_, notes, _ := strings.Cut(out, "\nNOTES:\n")
			said := strings.FieldsFunc(notes, func(r rune) bool { return strings.ContainsRune(" ,:\n", r) })
			for _, value := range rows {
				found := false
				for _, word := range said {
					found = found || strings.TrimSuffix(word, ".") == value
				}
				if !found {
					t.Errorf("%s: the notes of %s say nothing of %s:\n%s", h.Name, name, value, notes)
				}
			}
		}
	}
}
