package feature

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// Commands returns a text in which a proxy replaces commands such as %REQ(x-name)%. It has "-" where the proxy does not
// have the command: an Envoy rejects all routes, or the whole listener, with a command that it does not have.
func Commands(c node.Capabilities, text string) string {
	if c.Has(node.RecentCommands) {
		return text
	}
	return substitution.Older(text)
}
