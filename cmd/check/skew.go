package check

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// version returns the version of a server, or an empty string if the server does not answer.
func (s Server) version(ctx context.Context) string {
	status, text, err := s.Get(ctx, "/version")
	if err != nil || status != http.StatusOK {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// skew describes why a proxy's version does not fit its server. Istio supports proxies of the server's minor version
// and of the one before. It returns an empty string if the versions fit, or if one of them is no release.
func skew(server, proxy string) string {
	major, minor, ok := release(server)
	ofMajor, ofMinor, also := release(proxy)
	switch {
	case !ok || !also:
		return ""
	case ofMajor > major || ofMajor == major && ofMinor > minor:
		return fmt.Sprintf("proxies of version %s are newer than the server, which is %s: upgrade the server first", proxy, server)
	case ofMajor < major || minor-ofMinor > 1:
		return fmt.Sprintf(
			"proxies of version %s are more than one minor version behind the server, which is %s: upgrade them to %d.%d, or at least to %d.%d",
			proxy,
			server, major, minor, major, minor-1)
	}
	return ""
}

// release returns the major and minor number of a version.
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

// restart returns the command that restarts the Deployments of a proxy's namespace, so that injection gives their Pods
// new proxies.
func restart(proxy string) string {
	return "kubectl rollout restart deployment -n " + proxy[strings.LastIndexByte(proxy, '.')+1:] +
		"  # restarts all Deployments of the namespace; new Pods get new proxies"
}
