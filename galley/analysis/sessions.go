package analysis

import (
	"strconv"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// sessions reports labels that ask for persistent sessions of a control plane that does not enable them.
func (a *analysis) sessions() {
	if a.options.PersistentSessions {
		return
	}
	for _, kind := range []*kinds.Kind{kinds.Service, kinds.ServiceEntry} {
		for _, o := range a.of(kind) {
			for _, label := range []string{names.LabelSession, names.LabelSessionHeader} {
				if o.Labels[label] != "" {
					a.report(o, diag.Warning, codeNoEffect, "metadata.labels["+strconv.Quote(label)+"]",
						"set "+names.SessionsVariable+"=true for the control plane, or remove the label",
						"the control plane does not have %s: requests of a session do not stay at one endpoint", names.SessionsVariable)
				}
			}
		}
	}
}
