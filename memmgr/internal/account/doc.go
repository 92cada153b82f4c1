// Package account counts the memory of a pool that is in use, and times its requests.
//
//   - An [Account] has gauges of the bytes and blocks in use, with their peaks. A request that a shard serves is counted
//     in the shard and published here when the shard's counts have changed enough; other requests are counted here.
//     [Account.Collect] adds both up.
//   - Its latencies are histograms of package histogram.
//   - [TagNumber] numbers tags, so that an owner cell can contain one, and [TagUse] counts blocks by tag.
//
// The package knows no pool and no request. "The lock" is that of the pool: an Account needs it where a method says
// so. Gauges, latencies and tags need none.
package account
