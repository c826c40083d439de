"""How GraphQL clients say it: types, inputs, results, and their translation to commands."""
