// Package block has what all parts of a pool know about a block of memory.
//
//   - Size classes ([ClassFor], [ClassBytes]): blocks of up to 2 MiB have one of [NumClasses] sizes.
//     Other blocks, and specially aligned ones, have the class [NoClass] and are not cached.
//   - Magazines: a [Magazine] is a list of free blocks of one class, the unit that moves between a
//     shard and the depot. A [Stack] is a stack of magazines.
//   - States: [SetState] marks each change of the [State] of a block.
//   - Accessors of those fields of an owner cell whose meaning depends on the state ([Class], [Tenant]).
//   - The lock order of the pool: a [Mutex] has a [Rank].
//
// With the build tag usmb_checks, SetState panics on a transition that does not exist, Class on a pending
// block, and a Mutex on a violation of the lock order. Without it these checks cost nothing.
//
// docs/internals.md shows the states, the fields of a cell in each of them, and the lock order. The package
// has no locks of its own: the part of the pool that holds a block, a magazine or a stack guards it.
package block
