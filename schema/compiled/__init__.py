"""Operations that are executed by code made for them; everything unusual is left to graphql-core."""
