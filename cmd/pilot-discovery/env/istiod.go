package env

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/names"
)

//go:embed istiod.env
var istiodEnvironment string

// istiodVariables returns the variables that istiod 1.31 reads, with their defaults. The variables that name HTTP
// proxies are among them: istiod fetches the keys of token issuers through these proxies.
var istiodVariables = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(istiodEnvironment) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[name] = value
	}
	all["PILOT_DRAINING_LABEL"] = names.LabelDraining
	all["PILOT_GATEWAY_API_CONTROLLER_NAME"] = names.GatewayController
	all["PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME"] = names.TaintNotReady
	all["PILOT_PERSISTENT_SESSION_HEADER_LABEL"] = names.LabelSessionHeader
	all["PILOT_PERSISTENT_SESSION_LABEL"] = names.LabelSession
	return all
})

// sameSetting reports whether two texts of a variable mean the same to istiod. To istiod an empty text is the default.
func sameSetting(text, otherwise string) bool {
	if text == "" || text == otherwise {
		return true
	}
	if a, err := strconv.ParseBool(text); err == nil {
		if b, err := strconv.ParseBool(otherwise); err == nil {
			return a == b
		}
	}
	if a, err := time.ParseDuration(text); err == nil {
		if b, err := time.ParseDuration(otherwise); err == nil {
			return a == b
		}
	}
	a, err := strconv.ParseFloat(text, 64)
	b, other := strconv.ParseFloat(otherwise, 64)
	return err == nil && other == nil && a == b
}
