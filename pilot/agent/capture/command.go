package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flags are the arguments of istio-iptables, which injection templates and the CNI plugin set.
type flags struct {
	envoyPort, inboundPort, tunnelPort, uids, gids, marks string
	mode                                                  string
	inboundPorts, inboundExclude                          string
	ranges, rangesExclude, outboundPorts, outboundExclude string
	excludeInterfaces, virtualInterfaces                  string
	mark, table                                           string
	dns, allDNS, dropInvalid, dualStack                   bool
	dryRun, cleanup, validate, skipApply                  bool
	namespace                                             string
	probePort                                             uint16
	probeTimeout                                          time.Duration

	variables map[string]string // the variables that set flags, by the name of the flag
}

// Command returns the command `pilot-agent istio-iptables`. env returns the value of an environment variable.
func Command(env func(string) string) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "istio-iptables",
		Short: "Redirect the traffic of this pod to Envoy",
		Long: "Writes the rules that redirect the TCP connections of this pod to Envoy and its DNS queries to the agent. " +
			"They are one nftables table for each IP family and replace earlier ones. No other program is needed. " +
			"Except for --envoy-port and --proxy-mark, a variable of the same name sets a flag that is not among the arguments, such as " +
			"ISTIO_INBOUND_PORTS for --istio-inbound-ports.",
		Example: "  pilot-agent istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020\n" +
			"  pilot-agent istio-iptables --dry-run",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd, f, env) },
	}
	v := cmd.Flags()
	v.StringVarP(&f.envoyPort, "envoy-port", "p", "15001", "Envoy's port for outbound connections.")
	v.StringVarP(&f.inboundPort, "inbound-capture-port", "z", "15006", "Envoy's port for inbound connections.")
	v.StringVarP(&f.tunnelPort, "inbound-tunnel-port", "e", "15008", "Port of connections that are already tunneled and not captured.")
	v.StringVarP(&f.uids, "proxy-uid", "u", "",
		"Users of Envoy, whose connections are not captured, comma-separated; default $ENVOY_USER, istio-proxy if it exists, or 1337.")
	v.StringVarP(&f.gids, "proxy-gid", "g", "",
		"Groups of Envoy, whose connections are not captured, comma-separated; default the value of -u.")
	v.StringVar(&f.marks, "proxy-mark", "", "Marks (SO_MARK) of Envoy's connections, which are not captured, comma-separated.")
	v.StringVarP(&f.mode, "istio-inbound-interception-mode", "m", "",
		"How inbound connections are captured: REDIRECT, TPROXY or NONE; default REDIRECT.")
	v.StringVarP(&f.inboundPorts, "istio-inbound-ports", "b", "",
		"Inbound ports that are captured, comma-separated; * means all, empty means none.")
	v.StringVarP(&f.inboundExclude, "istio-local-exclude-ports", "d", "", "Inbound ports that are not captured, with -b '*'.")
	v.StringVarP(&f.ranges, "istio-service-cidr", "i", "",
		"IP ranges to which connections are captured, comma-separated; * means all, empty means none.")
	v.StringVarP(&f.rangesExclude, "istio-service-exclude-cidr", "x", "", "IP ranges to which connections are not captured.")
	v.StringVarP(&f.outboundPorts, "istio-outbound-ports", "q", "", "Outbound ports that are captured for all addresses.")
	v.StringVarP(&f.outboundExclude, "istio-local-outbound-ports-exclude", "o", "", "Outbound ports that are not captured.")
	v.StringVarP(&f.excludeInterfaces, "istio-exclude-interfaces", "c", "", "Interfaces whose traffic is not captured.")
	v.StringVarP(&f.virtualInterfaces, "kube-virt-interfaces", "k", "",
		"Interfaces of virtual machines, whose inbound traffic is treated as outbound.")
	v.StringVarP(&f.mark, "istio-inbound-tproxy-mark", "t", "1337", "With TPROXY: mark of packets for Envoy.")
	v.StringVarP(&f.table, "istio-inbound-tproxy-route-table", "r", "133", "With TPROXY: routing table that delivers packets to Envoy.")
	v.BoolVar(&f.dns, "redirect-dns", false, "Capture DNS queries to the servers of /etc/resolv.conf; also $ISTIO_META_DNS_CAPTURE.")
	v.BoolVar(&f.allDNS, "capture-all-dns", false, "With --redirect-dns: capture queries to all servers.")
	v.BoolVar(&f.dropInvalid, "drop-invalid", false, "Drop packets that belong to no connection; also $INVALID_DROP.")
	v.BoolVar(&f.dualStack, "dual-stack", false, "Capture IPv6 as well as IPv4; also $ISTIO_DUAL_STACK. A pod with only IPv6 needs no flag.")
	v.BoolVarP(&f.dryRun, "dry-run", "n", false,
		"Print the rules as a script for nft -f without writing them. Addresses and DNS servers are those of this process.")
	v.BoolVar(&f.cleanup, "cleanup-only", false, "Remove the rules.")
	v.BoolVar(&f.validate, "run-validation", false, "Check that connections are redirected to Envoy's port. Needs no capabilities.")
	v.BoolVar(&f.skipApply, "skip-rule-apply", false, "Write no rules, because a CNI plugin has written them.")
	v.StringVar(&f.namespace, "network-namespace", "",
		"Path of the network namespace to change; default this process's. Its DNS servers are unknown: use --capture-all-dns.")
	v.Uint16Var(&f.probePort, "iptables-probe-port", 15002, "Port that --run-validation connects to.")
	v.DurationVar(&f.probeTimeout, "probe-timeout", 5*time.Second, "How long --run-validation waits.")
	for _, name := range []string{"force-apply", "reconcile", "native-nftables", "cni-mode"} {
		v.Bool(name, false, "Accepted without effect: rules are always nftables rules, and always replaced.")
	}
	for _, name := range []string{"log_output_level", "log_caller", "log_stacktrace_level", "log_target"} {
		v.String(name, "", "Accepted without effect: this command prints its actions and errors.")
	}
	v.Bool("log_as_json", false, "Accepted without effect: this command prints its actions and errors.")
	v.String("force-iptables-binary", "", "Accepted without effect: no iptables program is used.")
	return cmd
}

// readEnvironment sets the flags that are not among the arguments from the variables of their names. Istio's script for
// virtual machines passes its settings in this way.
func (f *flags) readEnvironment(set *pflag.FlagSet, env func(string) string) error {
	f.variables = map[string]string{}
	var errs []error
	set.VisitAll(func(flag *pflag.Flag) {
		variable := strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value := env(variable)
		if flag.Changed || value == "" || strings.HasPrefix(flag.Name, "log_") || slices.Contains(argumentsOnly, flag.Name) {
			return
		}
		f.variables[flag.Name] = variable
		if err := flag.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("$%s: %q: %w", variable, value, err))
		}
	})
	return errors.Join(errs...)
}

// argumentsOnly are the flags that no variable sets.
var argumentsOnly = []string{"envoy-port", "help", "proxy-mark"}

func run(cmd *cobra.Command, f *flags, env func(string) string) error {
	if err := f.readEnvironment(cmd.Flags(), env); err != nil {
		return err
	}
	if name := cmd.Flags().Lookup("force-iptables-binary").Value.String(); name != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "--force-iptables-binary=%s has no effect: the rules are nftables rules\n", name)
	}
	if f.namespace != "" && !f.dryRun {
		// The thread stays in that namespace. The runtime ends it with its goroutine.
		runtime.LockOSThread()
		if err := enter(f.namespace); err != nil {
			return err
		}
	}
	c, err := f.config(cmd, env)
	if err != nil {
		return err
	}
	switch {
	case f.dryRun:
		fmt.Fprint(cmd.OutOrStdout(), c.Script())
		return nil
	case f.cleanup:
		return Remove(c)
	case !f.skipApply:
		if err := Apply(c); err != nil {
			return err
		}
		fmt.Fprint(cmd.OutOrStdout(), c.Script())
	}
	if f.validate {
		return validate(cmd.Context(), c, f.probePort, f.probeTimeout)
	}
	return nil
}

func enter(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--network-namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("--network-namespace: failed to enter %s: %w", path, err)
	}
	return nil
}

// config returns the Config for the arguments. The error names the wrong flags.
func (f *flags) config(cmd *cobra.Command, env func(string) string) (Config, error) {
	var errs []error
	addError := func(flag string, err error) {
		if variable := f.variables[flag]; err != nil && variable != "" {
			errs = append(errs, fmt.Errorf("$%s: %w", variable, err))
		} else if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	onePort := func(flag, s string) uint16 {
		p, err := parsePort(s)
		addError(flag, err)
		return p
	}
	ports := func(flag, s string) []uint16 {
		p, err := parsePorts(s)
		addError(flag, err)
		return p
	}
	ranges := func(flag, s string) []netip.Prefix {
		p, err := parseRanges(s)
		addError(flag, err)
		return p
	}
	ids := func(flag, s string, lookup func(string) (string, error)) []uint32 {
		n, err := parseIDs(s, lookup)
		addError(flag, err)
		return n
	}
	firstSet := func(values ...string) string {
		for _, v := range values {
			if v != "" {
				return v
			}
		}
		return ""
	}
	enabled := func(flag bool, name string) bool {
		on, err := strconv.ParseBool(firstSet(env(name), "false"))
		if err != nil {
			errs = append(errs, fmt.Errorf("$%s: %q is neither true nor false", name, env(name)))
		}
		return flag || on
	}
	uids, gids := f.uids, firstSet(f.gids, f.uids)
	if name := env("ENVOY_USER"); uids == "" && (f.marks == "" || gids != "" || name != "") {
		account, err := user.Lookup(firstSet(name, "istio-proxy"))
		switch {
		case err == nil:
			uids, gids = account.Uid, firstSet(gids, account.Gid)
		case name != "":
			errs = append(errs, fmt.Errorf("$ENVOY_USER: %q is not a user of this machine", name))
		default:
			uids, gids = "1337", firstSet(gids, "1337")
		}
	}
	c := Config{
		OutboundPort: onePort("envoy-port", f.envoyPort), InboundPort: onePort("inbound-capture-port", f.inboundPort),
		TunnelPort: onePort("inbound-tunnel-port", f.tunnelPort), Mode: Mode(firstSet(f.mode, string(Redirect))),
		UIDs: ids("proxy-uid", uids, uidOf), GIDs: ids("proxy-gid", gids, gidOf), Marks: ids("proxy-mark", f.marks, noNames),
		InboundExclude: ports("istio-local-exclude-ports", f.inboundExclude),
		ExcludeRanges:  ranges("istio-service-exclude-cidr", f.rangesExclude),

		OutboundInclude:   ports("istio-outbound-ports", f.outboundPorts),
		OutboundExclude:   ports("istio-local-outbound-ports-exclude", f.outboundExclude),
		ExcludeInterfaces: list(f.excludeInterfaces), VirtualInterfaces: list(f.virtualInterfaces),
		DNS: enabled(f.dns, "ISTIO_META_DNS_CAPTURE"), AllDNS: f.allDNS, DNSPort: 15053,
		DropInvalid: enabled(f.dropInvalid, "INVALID_DROP"), IPv6: enabled(f.dualStack, "ISTIO_DUAL_STACK"),
	}
	if c.AllInbound = f.inboundPorts == "*"; !c.AllInbound {
		c.InboundInclude = ports("istio-inbound-ports", f.inboundPorts)
	}
	if c.AllOutbound = f.ranges == "*"; !c.AllOutbound {
		c.IncludeRanges = ranges("istio-service-cidr", f.ranges)
	}
	if groups := env("ISTIO_OUTBOUND_OWNER_GROUPS"); groups != "*" {
		c.IncludeGroups = ids("ISTIO_OUTBOUND_OWNER_GROUPS", groups, gidOf)
	}
	if text := env("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"); text != "" {
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8 {
			errs = append(errs, fmt.Errorf("$ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: %q is not 127.0.0.0/8 or a part of it", text))
		}
		c.Loopback = p.Masked()
	}
	c.ExcludeGroups = ids("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", env("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"), gidOf)
	if c.Mode != Redirect && c.Mode != TProxy && c.Mode != None {
		addError("istio-inbound-interception-mode", fmt.Errorf("%q is neither REDIRECT, TPROXY nor NONE", c.Mode))
	}
	mark, err := strconv.ParseUint(f.mark, 0, 31)
	if err != nil || mark == 0 {
		addError("istio-inbound-tproxy-mark", fmt.Errorf("%q is not a number above 0", f.mark))
	}
	table, err := strconv.ParseUint(f.table, 10, 31)
	if err != nil || table == 0 {
		addError("istio-inbound-tproxy-route-table", fmt.Errorf("%q is not a number above 0", f.table))
	}
	c.TProxyMark, c.TProxyTable = uint32(mark), int(table)
	addError("istio-exclude-interfaces", checkInterfaces(c.ExcludeInterfaces))
	addError("kube-virt-interfaces", checkInterfaces(c.VirtualInterfaces))
	if f.namespace != "" && c.DNS && !c.AllDNS {
		addError("network-namespace", errors.New("the DNS servers of the pod are unknown: add --capture-all-dns"))
	}
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	if c.Mode == TProxy && cmd.Flags().Changed("inbound-tunnel-port") {
		fmt.Fprintln(cmd.ErrOrStderr(), "--inbound-tunnel-port has no effect with TPROXY: connections to it are captured like all others")
	}
	if c.DNS && !c.AllDNS {
		if c.DNSServers, err = nameServers("/etc/resolv.conf"); err != nil {
			return Config{}, err
		}
	}
	return f.chooseIPv6(cmd, c)
}

// checkInterfaces returns an error for a name that no interface can have.
func checkInterfaces(names []string) error {
	for _, name := range names {
		if len(name) > 15 || strings.HasSuffix(name, "+") {
			return fmt.Errorf("%q is not the name of an interface: write complete names of at most 15 bytes", name)
		}
	}
	return nil
}

// noNames is a lookup for numbers without names.
func noNames(s string) (string, error) { return "", fmt.Errorf("%q is not a number", s) }

// nameServers returns the addresses of the servers in a resolv.conf.
func nameServers(path string) (out []netip.Addr, err error) {
	conf, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("--redirect-dns: %w", err)
	}
	for _, s := range conf.Servers {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, ip.Unmap().WithZone(""))
		}
	}
	return out, nil
}

// chooseIPv6 enables IPv6 for a pod without IPv4 addresses. It prints a warning if IPv6 connections of a pod are not
// captured.
func (f *flags) chooseIPv6(cmd *cobra.Command, c Config) (Config, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return Config{}, fmt.Errorf("failed to list the addresses of this machine: %w", err)
	}
	var v4, v6 bool
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.IsGlobalUnicast() && ip != netip.MustParseAddr("::6") {
			v4, v6 = v4 || ip.Unmap().Is4(), v6 || ip.Unmap().Is6()
		}
	}
	if v6 && !v4 {
		c.IPv6 = true
	} else if v6 && !c.IPv6 {
		fmt.Fprintln(cmd.ErrOrStderr(), "IPv6 connections of this pod are not captured: --dual-stack is not set")
	}
	return c, nil
}

// ErrNotCaptured means that rules are missing.
var ErrNotCaptured = errors.New("connections are not redirected to Envoy's port: the rules are missing")

// ExitNotCaptured is the exit code by which the repair controller of the CNI plugin detects a pod without rules.
const ExitNotCaptured = 126

// validate connects to an address of this pod and checks that the connection arrives at Envoy's port for inbound
// connections. It must run as Envoy's user, and before Envoy.
func validate(ctx context.Context, c Config, probePort uint16, timeout time.Duration) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addr, err := ownAddress(c.IPv6)
	if err != nil {
		return err
	}
	return checkArrival(ctx, netip.AddrPortFrom(addr, probePort), c.InboundPort)
}
