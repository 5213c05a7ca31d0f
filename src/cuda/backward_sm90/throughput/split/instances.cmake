# backward_sm90_split's compiled kernels: one for each config without a softcap, input type and
# number of blocks; instances.cpp makes the list of them a table. The launches of rows are those of backward_sm90.
set(backward_sm90_split_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/backward_sm90/split)
set(backward_sm90_split_declarations "")
set(backward_sm90_split_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE 1)  # kPlainConfigs
    foreach(splits 2 4)
      string(TOLOWER "split${splits}_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
      set(INSTANCE_CLASS "CompiledInstance<${INSTANCE_CONFIG}, ${INSTANCE_ELEMENT}, ${splits}>")
      set(source ${backward_sm90_split_generated}/${INSTANCE_NAME}.cu)
      configure_file(backward_sm90/throughput/split/instance.cu.in ${source} @ONLY)
      flashcore_cuda_sources(backward_sm90_split LISTED GROUP split${splits} SOURCES ${source})
      if(flashcore_cuda_compiled)
        string(APPEND backward_sm90_split_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
        string(APPEND backward_sm90_split_entries
          "      {{throughput::InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}, ${splits}}, ${INSTANCE_NAME}()},\n")
      endif()
    endforeach()
  endforeach()
endforeach()
configure_file(backward_sm90/throughput/split/instance_list.hpp.in ${backward_sm90_split_generated}/instance_list.hpp @ONLY)

target_sources(flashcore_objects PRIVATE backward_sm90/throughput/split/instances.cpp)
set_source_files_properties(backward_sm90/throughput/split/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${backward_sm90_split_generated})
