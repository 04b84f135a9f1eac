package mutants

// mutant is one fault, and the test that notices it.
type mutant struct {
	name         string // describes the fault
	file         string
	was, is      string // lines of the file, and the faulty lines
	folder, test string // the package and the test; a test may name a subtest after a slash
	checks       string // the number of rapid's checks; empty means 100
}

func (m mutant) draws() string {
	if m.checks == "" {
		return "100"
	}
	return m.checks
}

// mutants are the faults, by the package that has them.
var mutants = []mutant{
	// pilot/facts
	{
		name: "an answer that is not needed any more stays in force",
		file: "pilot/facts/facts.go", was: "if !t.wants(n) {", is: "if false {",
		folder: "pilot/facts", test: "TestTable",
	},
	{
		name: "an answer to a question of nobody is in force",
		file: "pilot/facts/facts.go", was: "case !t.wants(c.Name):", is: "case false:",
		folder: "pilot/facts", test: "TestTable",
	},

	// pilot/snapshot
	{
		name: "an object written without a change is a change",
		file: "pilot/snapshot/builder.go", was: "config.Equal(was, c.Object) {", is: "config.Equal(was, c.Object) && false {",
		folder: "pilot/snapshot", test: "TestEqualObjectKeepsItsPointer",
	},
	{
		name: "a change of roots is in no Diff",
		file: "pilot/snapshot/builder.go", was: "s.Diff.Roots = b.roots != b.last.roots", is: "s.Diff.Roots = false",
		folder: "pilot/snapshot", test: "TestRootsOfDiff",
	},
	{
		name: "a change of what was derived from an object is in no Diff",
		file: "pilot/snapshot/builder.go", was: "!reflect.DeepEqual(a.Extra, b.Extra) {", is: "!reflect.DeepEqual(a.Extra, b.Extra) && false {",
		folder: "pilot/snapshot", test: "TestEqualObjectKeepsItsPointer",
	},
	{
		name: "a workload that comes with its endpoint is taken for one that only its address connects",
		file: "pilot/snapshot/builder.go", was: " && !b.newAddresses[at])", is: ")",
		folder: "pilot/snapshot", test: "TestDiff",
	},
	{
		name: "a Snapshot has what was derived from the one before",
		file: "pilot/snapshot/builder.go", was: "\ts.Revision++\n\ts.cached = &sync.Map{}\n", is: "\ts.Revision++\n",
		folder: "pilot/translate", test: "TestChangesMatchFreshWorld",
	},
	{
		name: "a fact that no object needs any more stays in force",
		file: "pilot/snapshot/facts.go", was: "\t\t\tb.unwanted = append(b.unwanted, w.Key)\n", is: "",
		folder: "pilot/snapshot", test: "TestFacts",
	},
	{
		name: "a question of a new object is not asked",
		file: "pilot/snapshot/facts.go", was: "\t\t\tdelete(b.wanted, w.Key.Kind)\n\t\t\tb.current.wants.Put", is: "\t\t\tb.current.wants.Put",
		folder: "pilot/snapshot", test: "TestFacts",
	},

	// pilot/scope
	{
		name: "the listeners of a service that has gone are not dirty",
		file: "pilot/scope/invalidate.go", was: "\t\tif sc.Old != nil {\n", is: "\t\tif sc.Old != nil && sc.New != nil {\n",
		folder: "pilot/translate", test: "TestIncrementalSetsMatchFreshOnes",
	},
	{
		name: "the hosts that a pattern covers are not dirty",
		file: "pilot/scope/invalidate.go", was: `strings.HasPrefix(host, "*")`, is: `strings.HasPrefix(host, "**")`,
		folder: "pilot/scope", test: "TestDirtyHostsAndListeners",
	},
	{
		name: "hosts that share an address are not dirty together",
		file: "pilot/scope/invalidate.go", was: "\t\tb.addHost(l.service.Host)\n", is: "\t\t_ = l\n",
		folder: "pilot/scope", test: "TestDirtyHostsAndListeners",
	},
	{
		name: "endpoints that clusters depend on change assignments alone",
		file: "pilot/scope/invalidate.go", was: " || slices.ContainsFunc(b.diff.OldEndpoints, b.beyondAssignments)", is: "",
		folder: "pilot/scope", test: "TestCompare",
	},
	{
		name: "a Gateway is not known to select workloads of other namespaces",
		file: "pilot/scope/invalidate.go", was: "case o.Kind == kinds.Gateway, o.Namespace", is: "case o.Namespace",
		folder: "pilot/cohort", test: "TestCohortsOutsideReassignStay",
	},
	{
		name: "a merged change has no proxies to reassign",
		file: "pilot/scope/dirty.go", was: "\t\tall.Reassign.Namespaces = append(all.Reassign.Namespaces, c.Reassign.Namespaces...)\n", is: "",
		folder: "pilot/translate/engine", test: "TestHistoryMergesOldChanges",
	},
	{
		name: "a merged change has no listeners",
		file: "pilot/scope/dirty.go", was: "\t\tall.Listeners = append(all.Listeners, c.Listeners...)\n", is: "",
		folder: "pilot/translate", test: "TestIncrementalSetsMatchFreshOnes",
	},

	// pilot/translate
	{
		name: "a Set made by names keeps a name that failed",
		file: "pilot/translate/engine/byname.go", was: "slices.AppendSeq(slices.Clip(g.Affected(d, list)), maps.Keys(last.failed))",
		is:     "g.Affected(d, list)",
		folder: "pilot/translate/engine", test: "TestSetByNameMatchesFreshOne",
	},
	{
		name: "a Set made from that of other names forgets what failed",
		file: "pilot/translate/engine/byname.go", was: "\t\tif list.Has(name) {\n", is: "\t\tif false {\n",
		folder: "pilot/translate/engine", test: "TestSetByNameMatchesFreshOne",
	},
	{
		name: "a name is not looked for in the Set that has it",
		file: "pilot/translate/engine/byname.go", was: "\t\t\tv.elsewhere.Put(e, name)\n", is: "",
		folder: "pilot/translate", test: "TestTopologyPriority",
	},
	{
		name: "a change of everything is merged with older ones",
		file: "pilot/translate/engine/history.go", was: "if first[0].All {", is: "if false {",
		folder: "pilot/translate/engine", test: "TestHistoryMergesOldChanges",
	},
	{
		name: "a stream that missed a change is told of later ones alone",
		file: "pilot/translate/engine/history.go", was: "from+1 < h.changes[0].from", is: "from+1 < h.changes[0].to",
		folder: "pilot/translate/engine", test: "TestHistoryMergesOldChanges",
	},
	{
		name: "an old version of a Set is in force where only one in between differs",
		file: "pilot/translate/engine/cache.go", was: "if v.from <= revision && revision <= v.to {", is: "if v.from <= revision {",
		folder: "pilot/translate/engine", test: "TestRevertedSetKeepsItsHistory",
	},
	{
		name: "a Set that nobody uses stays",
		file: "pilot/translate/engine/cache.go", was: "\t\tevictWith(c, e, k, k.names.Value())\n", is: "",
		folder: "pilot/translate/engine", test: "TestSetByNamesAreEvicted",
	},
	{
		name: "what depends on a dirty partition is not made again",
		file: "pilot/translate/engine/generator.go", was: "if g.Closure != nil {", is: "if false {",
		folder: "pilot/translate", test: "TestIncrementalSetsMatchFreshOnes",
	},
	{
		name: "assignments of hosts whose rules changed are not made again",
		file: "pilot/translate/eds/endpoints.go", was: "[][]string{d.Hosts, d.Endpoints}", is: "[][]string{d.Endpoints}",
		folder: "pilot/translate", test: "TestHistories",
	},
	{
		name: "a patched route configuration without virtual hosts has the version of a whole one",
		file: "pilot/translate/patch/patch.go", was: "\t\t\tr.SetDivided()\n", is: "\t\t\tr.Divided = true\n",
		folder: "pilot/translate", test: "TestPatchedHeadHasVersionOfHead",
	},

	// pilot/cohort
	{
		name: "every address is an inbound cohort",
		file: "pilot/cohort/cohort.go", was: "if slices.ContainsFunc(spec.Ingress, namesAddress) {", is: "if true {",
		folder: "pilot/cohort", test: "TestAddressSplitsOnlyWhereIngressNamesIt",
	},
	{
		name: "every node is a cohort",
		file: "pilot/cohort/cohort.go", was: "k.Node = cmp.Or(w.NodeName, p.NodeName)\n",
		is:     "k.Node = cmp.Or(w.NodeName, p.NodeName)\n\t\tk.Client.Node = k.Node\n",
		folder: "pilot/cohort", test: "TestNodesSplitNoScope",
	},
	{
		name: "a workload that has gone leaves its policies at once",
		file: "pilot/cohort/cohort.go", was: "k.Inbound, k.Patches = last.Inbound, last.Patches", is: "k.Inbound = last.Inbound",
		folder: "pilot/cohort", test: "TestKeepInbound",
	},
	{
		name: "rules of whom a workload serves are read for the namespace that calls",
		file: "pilot/cohort/cohort.go", was: "x.DestinationRules(found[i].Service.Namespace, found[i].Service,",
		is:     "x.DestinationRules(w.Namespace, found[i].Service,",
		folder: "pilot/cohort", test: "TestRulesOfTheServedService",
	},

	// pilot/xds
	{
		name: "a name that is left out no longer is no difference",
		file: "pilot/xds/diff/diff.go", was: "if from.Omit != to.Omit {", is: "if false {",
		folder: "pilot/xds/diff", test: "TestDifferenceEqualsNameByNameComparison",
	},
	{
		name: "versions are those of an earlier list",
		file: "pilot/xds/diff/versions.go", was: "t.versions == nil || t.clusters != k", is: "t.versions == nil",
		folder: "pilot/xds/diff", test: "TestVersionCache",
	},
	{
		name: "merged pushes forget that everything is compared",
		file: "pilot/xds/session/push.go", was: "p.Full || newer.Full", is: "newer.Full",
		folder: "pilot/xds/session", test: "TestHistories",
	},
	{
		name: "a client whose patches changed meanwhile is sent whole route configurations",
		file: "pilot/xds/session/hosts.go", was: "!envoy.IsHeadVersion(r.Version)", is: "r.Version != is.Head.Version",
		folder: "pilot/xds/session", test: "TestSession/vhds",
	},
	{
		name: "virtual hosts of an earlier route configuration are taken for those that a client has",
		file: "pilot/xds/session/hosts.go", was: "if n != s.generations[route] {", is: "if false && n != s.generations[route] {",
		folder: "pilot/xds/session", test: "TestSession/vhds",
	},
	{
		name: "virtual hosts do not follow their route configuration",
		file: "pilot/xds/session/hosts.go", was: "\ts.nextGeneration(route)\n\ts.resendHosts(route)\n", is: "\ts.nextGeneration(route)\n",
		folder: "pilot/xds/session", test: "TestHistories",
	},
	{
		name: "what was rejected by itself comes again",
		file: "pilot/xds/session/watch.go", was: "\treturn slices.Contains(w.rejected[r.Name], r.Version)\n", is: "\treturn false\n",
		folder: "pilot/xds/session", test: "TestHistories",
	},
	{
		name: "what came with assignments of unknown names is taken for the one that was rejected",
		file: "pilot/xds/session/watch.go", was: "case len(list) < len(d.resources) || d.unknown:", is: "case len(list) < len(d.resources):",
		folder: "pilot/xds/session", test: "TestUnknownAssignmentsBlameNoOther",
	},
	{
		name: "clusters are removed from a client that resumes before its listeners are known",
		file: "pilot/xds/session/session.go", was: "s.resuming = s.resuming && !s.clustersAnswered", is: "s.resuming = false",
		folder: "pilot/xds/session", test: "TestSession/delta_reconnect_late",
	},
	{
		name: "clusters that are gone stay with a client that answers late",
		file: "pilot/xds/conn.go", was: "(!c.deadlines.waits(resumed) || r.Asks() && ", is: "r.Asks() && (!c.deadlines.waits(resumed) || ",
		folder: "pilot/xds", test: "TestClustersStayUntilResumerHasAnswered",
	},
	{
		name: "a group sleeps through the merged pushes of which it saw the last alone",
		file: "pilot/xds/group.go", was: "if p.First != p.Snapshot.Revision {", is: "if false {",
		folder: "pilot/xds", test: "TestMergedPushesWakeTheGroup",
	},
	{
		name: "a type that could not be translated is not compared again",
		file: "pilot/xds/session/session.go", was: "reassign || w.failed || ", is: "reassign || ",
		folder: "pilot/xds/session", test: "TestSameTypesAreNotCompared",
	},
	{
		name: "a stream that joins a group misses what that has checked",
		file: "pilot/xds/group.go", was: "if s.latest.Revision > c.session.Revision() {", is: "if false {",
		folder: "pilot/xds", test: "TestLeavesItsGroupBeforeThatHasChecked",
	},

	// registry
	{
		name: "endpoints that a cluster does not export are for all clusters",
		file: "registry/mcs/table.go", was: "confined.SameCluster = true", is: "confined.SameCluster = false",
		folder: "pilot/translate", test: "TestSets",
	},
	{
		name: "a host in clusterset.local does not follow its Service",
		file: "registry/aggregate/sets.go", was: "ok {\n\t\t\tadd(n, true)", is: "ok && false {\n\t\t\tadd(n, true)",
		folder: "registry/aggregate", test: "TestHistoriesOfSets",
	},

	// Others
	{
		name: "*web.example.com does not cover web.example.com",
		file: "api/names/hosts.go", was: ` || !strings.HasPrefix(suffix, "."))`, is: ")",
		folder: "api/names", test: "TestCovers",
	},

	// what is in force
	{
		name: "a revision is in force when the clusters are acknowledged, and not what they name",
		file: "pilot/xds/session/inforce.go", was: "if !s.referenceInForce(r, depth+1) {", is: "if false && !s.referenceInForce(r, depth+1) {",
		folder: "pilot/xds/session", test: "TestSession/debts_grpc",
	},
	{
		name: "a rejected resource is in force",
		file: "pilot/xds/session/inforce.go", was: "return !w.isRejected(is)", is: "return true",
		folder: "pilot/xds/session", test: "TestSession/debts",
	},
	{
		name: "a name that does not exist holds up no change",
		file: "pilot/xds/session/inforce.go", was: `why == "" || !known && !slices.Contains(before, r)`,
		is:     `why == "" || false && !known && !slices.Contains(before, r)`,
		folder: "pilot/xds/session", test: "TestSession/debts_secrets",
	},
	{
		name: "a name that does not exist holds up later changes too",
		file: "pilot/xds/session/inforce.go", was: `!known && !slices.Contains(before, r)`, is: "!known && (before == nil || before != nil)",
		folder: "pilot/xds/session", test: "TestSession/debts_secrets",
	},
	{
		name: "a client that resumes owes nothing",
		file: "pilot/xds/session/debts.go", was: "Debt{To: math.MaxUint64, Since: s.began}", is: "Debt{Since: s.began}",
		folder: "pilot/xds/session", test: "TestSession/debts_resumes",
	},
	{
		name: "a client that rejects its first configuration owes nothing",
		file: "pilot/xds/session/debts.go", was: "if !all && (taken", is: "if false && !all && (taken",
		folder: "pilot/xds/session", test: "TestSession/debts_rejected",
	},
	{
		name: "a client that rejects its first configuration owes the push alone",
		file: "pilot/xds/session/debts.go", was: "(!owned || n <= w.fresh)", is: "!owned",
		folder: "pilot/xds/session", test: "TestSession/debts_rejected",
	},
	{
		name: "a client that resumes has what it was sent ahead",
		file: "pilot/xds/session/debts.go", was: "x.making || x.resumes {\n\t\t\tx.ahead", is: "x.making {\n\t\t\tx.ahead",
		folder: "pilot/xds/session", test: "TestSession/debts_rejected",
	},
	{
		name: "a proxy that starts again is not awaited",
		file: "pilot/xds/departures.go", was: "if !arrived && s.departures.has(c.proxy) {", is: "if false {",
		folder: "pilot/xds", test: "TestProgressOfRestarts",
	},
	{
		name: "a proxy that is held is forgotten",
		file: "pilot/xds/departures.go", was: "case d.workload == nil:", is: "case true:",
		folder: "pilot/xds", test: "TestHeldProxies",
	},
	{
		name: "a departed proxy is forgotten",
		file: "pilot/xds/server.go", was: "if expected && !s.closed {", is: "if false && expected {",
		folder: "pilot/xds", test: "TestProgressOfDepartures",
	},
	{
		name: "a proxy is taken for one of its name in another cluster",
		file: "pilot/xds/owing.go", was: `return id + "/" + cluster`, is: "return id",
		folder: "pilot/progress", test: "TestProxiesOfTheSameName",
	},
	{
		name: "a replica that cannot be asked is left out",
		file: "pilot/progress/replicas.go", was: "if r.Error != \"\" {\n\t\t\tall.State", is: "if false && r.Error != \"\" {\n\t\t\tall.State",
		folder: "pilot/progress", test: "TestReplicas",
	},
	{
		name: "a replica that has ended leaves no proxies",
		file: "pilot/progress/replicas.go", was: "if len(gone) > 0 || back {", is: "if back {",
		folder: "pilot/progress", test: "TestEndedReplicas",
	},
	{
		name: "a proxy that has moved and left again is connected",
		file: "pilot/progress/replicas.go", was: "return o.State == departed && o.name() == name", is: "return false",
		folder: "pilot/progress", test: "TestLeavesAgain",
	},
	{
		name: "a proxy that a push may concern is counted",
		file: "pilot/progress/history.go", was: "concerned = p.Settled", is: "concerned = p.Concerned",
		folder: "pilot/progress", test: "TestMayBeConcerned",
	},
	{
		name: "proxies that connected later have nothing",
		file: "pilot/progress/tracker.go", was: "case later > 0:", is: "case false:",
		folder: "pilot/progress", test: "TestConnectedLater",
	},
	{
		name: "an account may try out the content of a Secret",
		file: "pilot/debug/inforce.go", was: "list[0].Kind == kinds.Secret && query.Has(\"version\")", is: "false",
		folder: "pilot/debug", test: "TestReadersOfANamespace",
	},
	{
		name: "an object that was written again is the one before",
		file: "pilot/progress/tracker.go", was: "!v.Gone && q.UID != \"\" && q.UID != v.UID,", is: "false,",
		folder: "pilot/progress", test: "TestWrittenAgain",
	},
}
