package check

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// version returns the version of a server, empty where it does not say it.
func (s Server) version(ctx context.Context) string {
	status, text, err := s.Get(ctx, "/version")
	if err != nil || status != http.StatusOK {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// skew says what is wrong with the version of a proxy beside that of its server, as Istio supports it: a control plane
// may be one minor version ahead of a proxy, and no proxy may be ahead of it. Empty: nothing is, or one of the two is
// no release.
func skew(server, proxy string) string {
	major, minor, ok := release(server)
	ofMajor, ofMinor, also := release(proxy)
	switch {
	case !ok || !also:
		return ""
	case ofMajor > major || ofMajor == major && ofMinor > minor:
		return fmt.Sprintf("proxies of version %s are ahead of the server, which is %s: upgrade the server first", proxy, server)
	case ofMajor < major || minor-ofMinor > 1:
		return fmt.Sprintf(
			"proxies of version %s are more than one minor version behind the server, which is %s: give them %d.%d, or at least %d.%d", proxy,
			server, major, minor, major, minor-1)
	}
	return ""
}

// release returns the major and the minor number of a version.
func release(version string) (major, minor int, ok bool) {
	part := strings.SplitN(version, ".", 3)
	if len(part) < 2 {
		return 0, 0, false
	}
	major, err := strconv.Atoi(part[0])
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(part[1])
	return major, minor, err == nil
}

// restart returns the command that gives the Pod of a proxy, and those beside it, the proxy that injection now has.
func restart(proxy string) string {
	return "kubectl rollout restart deployment -n " + proxy[strings.LastIndexByte(proxy, '.')+1:] +
		"  # all of the namespace; injection gives each the proxy of the templates"
}
